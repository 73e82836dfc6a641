"""Background commands that keep their sandbox awake."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from sandlot.sql import Number, UtcTime

revision = "p0003"
down_revision = "p0002"


def upgrade() -> None:
    op.create_table(
        "platform_commands",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("sandbox_id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("pid", Number, nullable=False),
        sa.Column("command", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("started_at", UtcTime(), nullable=False),
        sa.Column("ended_at", UtcTime()),
        sa.Column("exit_code", Number),
        sa.Column("problem", sa.String()),
        sa.Column("revision", sa.Integer(), nullable=False),
    )
    op.create_index("platform_commands_status", "platform_commands", ["status", "sandbox_id"])
