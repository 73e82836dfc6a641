"""Snapshots: templates that begin with a machine's state."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    for name in ("checkpoint", "source", "node"):
        op.add_column("templates", sa.Column(name, sa.String))
