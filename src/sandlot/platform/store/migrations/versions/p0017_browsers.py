"""Browsers, their contexts and extensions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from sandlot.sql import Json, UtcTime

revision = "p0017"
down_revision = "p0016"


def upgrade() -> None:
    op.create_table(
        "platform_browsers",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("started_at", UtcTime()),
        sa.Column("ended_at", UtcTime()),
        sa.Column("record", Json, nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
    )
    op.create_index("platform_browsers_list", "platform_browsers", ["user_id", "created_at", "id"])
    op.create_index("platform_browsers_status", "platform_browsers", ["status"])
    op.create_table(
        "platform_browser_contexts",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.Column("name", sa.String()),
        sa.Column("name_key", sa.String()),
        sa.Column("blob", sa.String()),
        sa.Column("key", sa.String()),
        sa.Column("revision", sa.Integer(), nullable=False),
    )
    op.create_index("platform_browser_contexts_name", "platform_browser_contexts", ["name_key"], unique=True)
    op.create_table(
        "platform_browser_extensions",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("file_name", sa.String(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("blob", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
    )
