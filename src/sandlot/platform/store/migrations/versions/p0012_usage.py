"""What users used, by day, and when keys were last used."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from sandlot.sql import UtcTime

revision = "p0012"
down_revision = "p0011"


def upgrade() -> None:
    op.add_column("platform_keys", sa.Column("last_used_at", UtcTime()))
    op.create_table(
        "platform_usage",
        sa.Column("day", sa.String(), primary_key=True),
        sa.Column("user_id", sa.String(), primary_key=True),
        sa.Column("repository", sa.String(), primary_key=True),
        sa.Column("agent", sa.String(), primary_key=True),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("cpu_s", sa.Float(), nullable=False),
        sa.Column("memory_gib_s", sa.Float(), nullable=False),
        sa.Column("starts", sa.Integer(), nullable=False),
    )
    op.create_table(
        "platform_meters",
        sa.Column("provider", sa.String(), primary_key=True),
        sa.Column("sandbox_id", sa.String(), primary_key=True),
        sa.Column("charged_until", UtcTime(), nullable=False),
    )
