"""Browsers that are logged in to the console, and links that log one in."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from sandlot.sql import Json, UtcTime

revision = "p0009"
down_revision = "p0008"


def upgrade() -> None:
    op.create_table(
        "platform_browser_sessions",
        sa.Column("digest", sa.String(), primary_key=True),
        sa.Column("key_digest", sa.String()),
        sa.Column("user_id", sa.String()),
        sa.Column("scopes", Json, nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("seen_at", UtcTime(), nullable=False),
        sa.Column("ends_at", UtcTime(), nullable=False),
    )
    op.create_table(
        "platform_login_links",
        sa.Column("digest", sa.String(), primary_key=True),
        sa.Column("key_digest", sa.String(), nullable=False),
        sa.Column("ends_at", UtcTime(), nullable=False),
    )
