"""What the sandbox of a session may reach."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from sandlot.sql import Json

revision = "p0014"
down_revision = "p0013"


def upgrade() -> None:
    op.add_column("platform_sessions", sa.Column("network", Json))
