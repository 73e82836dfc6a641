"""The audit log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from sandlot.sql import Json, Number, UtcTime

revision = "p0013"
down_revision = "p0012"


def upgrade() -> None:
    op.create_table(
        "platform_audit",
        sa.Column("seq", Number, primary_key=True, autoincrement=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("data", Json, nullable=False),
        sa.Column("previous", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
    )
