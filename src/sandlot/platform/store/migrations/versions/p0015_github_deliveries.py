"""Webhook requests of GitHub, as they came in."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from sandlot.sql import Json, Number, UtcTime

revision = "p0015"
down_revision = "p0014"


def upgrade() -> None:
    op.create_table(
        "platform_github_deliveries",
        sa.Column("seq", Number, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("event", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("repository", sa.String(), nullable=False),
        sa.Column("sender", sa.String(), nullable=False),
        sa.Column("received_at", UtcTime(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_at", UtcTime()),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("tasks", Json, nullable=False),
        sa.Column("replays", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("platform_github_deliveries_id", "platform_github_deliveries", ["id"], unique=True)
    op.create_index("platform_github_deliveries_due", "platform_github_deliveries", ["status", "next_at"])
