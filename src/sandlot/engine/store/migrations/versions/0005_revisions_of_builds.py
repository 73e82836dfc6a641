"""Builds have a revision: they are written with compare-and-set, like sandboxes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("builds", sa.Column("revision", sa.Integer(), nullable=False, server_default="0"))
