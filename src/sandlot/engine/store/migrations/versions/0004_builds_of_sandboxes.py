"""Sandboxes know the build of their template that they were made from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("sandboxes", sa.Column("build_id", sa.String(), nullable=True))
