"""Builds of templates, their logs, and tags."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from sandlot.sql import Json, UtcTime

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "builds",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("template_id", sa.String(), nullable=False),
        sa.Column("team_id", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("tags", Json, nullable=False),
        sa.Column("resources", Json, nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.Column("finished_at", UtcTime(), nullable=True),
        sa.Column("content", Json, nullable=True),
        sa.Column("problem", sa.String(), nullable=True),
        sa.Column("problem_step", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("builds_template", "builds", ["template_id", "created_at"], unique=False)
    op.create_index("builds_status", "builds", ["status"], unique=False)
    op.create_table(
        "build_logs",
        sa.Column("build_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("level", sa.String(), nullable=False),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("fields", Json, nullable=False),
        sa.ForeignKeyConstraint(["build_id"], ["builds.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("build_id", "number"),
    )
    op.create_table(
        "tags",
        sa.Column("template_id", sa.String(), nullable=False),
        sa.Column("tag", sa.String(), nullable=False),
        sa.Column("build_id", sa.String(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(["build_id"], ["builds.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("template_id", "tag"),
    )
