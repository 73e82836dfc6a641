"""Tasks, their steps, their timelines, and how far the streams of their agents were read."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from sandlot.sql import Json, Number, UtcTime

revision = "p0005"
down_revision = "p0003"


def _task() -> sa.Column[str]:
    return sa.Column("task_id", sa.String(), sa.ForeignKey("platform_tasks.id", ondelete="CASCADE"), nullable=False)


def upgrade() -> None:
    op.create_table(
        "platform_tasks",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("repository", sa.String(), nullable=False),
        sa.Column("parent", sa.String()),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("once_key", sa.String()),
        sa.Column("lease_owner", sa.String()),
        sa.Column("lease_until", UtcTime()),
        sa.Column("record", Json, nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
    )
    op.create_index("platform_tasks_once", "platform_tasks", ["once_key"], unique=True)
    op.create_index("platform_tasks_list", "platform_tasks", ["user_id", "created_at", "id"])
    op.create_index("platform_tasks_status", "platform_tasks", ["status"])
    op.create_table(
        "platform_task_steps",
        _task(),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("started_at", UtcTime()),
        sa.Column("ended_at", UtcTime()),
        sa.Column("problem", sa.String()),
        sa.PrimaryKeyConstraint("task_id", "run", "number", "name"),
    )
    op.create_table(
        "platform_timeline",
        sa.Column("seq", Number, primary_key=True, autoincrement=True),
        _task(),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("data", Json, nullable=False),
        sa.Column("raw", sa.String()),
        sqlite_autoincrement=True,
    )
    op.create_index("platform_timeline_task", "platform_timeline", ["task_id", "seq"])
    op.create_table(
        "platform_task_streams",
        _task(),
        sa.Column("stream", sa.String(), nullable=False),
        sa.Column("lines", Number, nullable=False),
        sa.PrimaryKeyConstraint("task_id", "stream"),
    )
