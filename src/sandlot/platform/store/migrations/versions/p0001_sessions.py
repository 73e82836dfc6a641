"""Facts, keys, sessions, events and deliveries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from sandlot.sql import Json, Number, UtcTime

revision = "p0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "platform_facts",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("value", sa.String(), nullable=False),
    )
    op.create_table(
        "platform_keys",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("user_id", sa.String()),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("scopes", Json, nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("hint", sa.String(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("revoked_at", UtcTime()),
    )
    op.create_index("platform_keys_digest", "platform_keys", ["digest"], unique=True)
    _sessions()
    _events()


def _sessions() -> None:
    op.create_table(
        "platform_sessions",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("live_key", sa.String()),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("timeout_s", sa.Integer(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("last_used_at", UtcTime(), nullable=False),
        sa.Column("template_id", sa.String()),
        sa.Column("agent_type", sa.String()),
        sa.Column("provider_sandbox_id", sa.String()),
        sa.Column("envs", Json, nullable=False),
        sa.Column("metadata", Json, nullable=False),
        sa.Column("queued_at", UtcTime()),
        sa.Column("started_at", UtcTime()),
        sa.Column("expires_at", UtcTime()),
        sa.Column("ended_at", UtcTime()),
        sa.Column("problem", sa.String()),
        sa.Column("revision", sa.Integer(), nullable=False),
    )
    op.create_index("platform_sessions_live", "platform_sessions", ["live_key"], unique=True)
    op.create_index("platform_sessions_list", "platform_sessions", ["user_id", "created_at", "id"])
    op.create_index("platform_sessions_status", "platform_sessions", ["status"])


def _events() -> None:
    op.create_table(
        "platform_events",
        sa.Column("id", Number, primary_key=True, autoincrement=True),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("sandbox_id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("data", Json, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("platform_events_user", "platform_events", ["user_id", "id"])
    op.create_index("platform_events_sandbox", "platform_events", ["sandbox_id", "id"])
    op.create_index("platform_events_at", "platform_events", ["at"])
    op.create_table(
        "platform_deliveries",
        sa.Column("id", Number, primary_key=True, autoincrement=True),
        sa.Column("webhook", sa.String(), nullable=False),
        sa.Column("event_id", Number, sa.ForeignKey("platform_events.id", ondelete="CASCADE"), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_at", UtcTime()),
        sa.Column("problem", sa.String()),
        sqlite_autoincrement=True,
    )
    op.create_index("platform_deliveries_due", "platform_deliveries", ["next_at", "id"])
    op.create_index("platform_deliveries_event", "platform_deliveries", ["event_id"])
