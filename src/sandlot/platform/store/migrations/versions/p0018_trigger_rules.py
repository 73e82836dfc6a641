"""Rules that make tasks: those that came over the API, and the pauses of all."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from sandlot.sql import Json, UtcTime

revision = "p0018"
down_revision = "p0017"


def upgrade() -> None:
    op.create_table(
        "platform_trigger_rules",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("rule", Json),
        sa.Column("paused_at", UtcTime()),
        sa.Column("paused_reason", sa.String()),
        sa.Column("resumed_at", UtcTime()),
        sa.Column("created_at", UtcTime()),
    )
