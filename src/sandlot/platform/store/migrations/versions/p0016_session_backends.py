"""The backend of a session, and where else it may start."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from sandlot.sql import Json

revision = "p0016"
down_revision = "p0015"


def upgrade() -> None:
    op.add_column("platform_sessions", sa.Column("backend", sa.String))
    op.add_column("platform_sessions", sa.Column("alternatives", Json))
