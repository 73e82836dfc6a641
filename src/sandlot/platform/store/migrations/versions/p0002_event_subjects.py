"""Events are about any subject: the sandbox of an event becomes a subject of kind `sandbox`, and a session is optional."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "p0002"
down_revision = "p0001"


def upgrade() -> None:
    # Column by column: SQLite would copy the table to change it otherwise, and dropping the old one would take the
    # deliveries with it, which refer to it.
    op.drop_index("platform_events_sandbox", "platform_events")
    op.execute("ALTER TABLE platform_events RENAME COLUMN sandbox_id TO subject_id")
    op.add_column("platform_events", sa.Column("subject_kind", sa.String(), nullable=False, server_default="sandbox"))
    op.execute("ALTER TABLE platform_events RENAME COLUMN session_id TO old_session_id")
    op.add_column("platform_events", sa.Column("session_id", sa.String()))
    op.execute("UPDATE platform_events SET session_id = old_session_id")
    op.execute("ALTER TABLE platform_events DROP COLUMN old_session_id")
    op.create_index("platform_events_subject", "platform_events", ["subject_kind", "subject_id", "id"])
