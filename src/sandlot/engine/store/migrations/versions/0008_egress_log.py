"""The egress log: what left sandboxes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from sandlot.sql import Json, Number, UtcTime

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "egress_entries",
        sa.Column("id", Number, primary_key=True, autoincrement=True),
        sa.Column("team_id", sa.String(), nullable=False),
        sa.Column("sandbox_id", sa.String(), nullable=False),
        sa.Column("at", UtcTime, nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("allowed", sa.Boolean(), nullable=False),
        sa.Column("connections", Number, nullable=False),
        sa.Column("bytes_out", Number, nullable=False),
        sa.Column("bytes_in", Number, nullable=False),
        sa.Column("rule", sa.String()),
        sa.Column("reason", sa.String()),
        sa.Column("secrets", Json, nullable=False),
    )
    op.create_index("egress_entries_sandbox", "egress_entries", ["sandbox_id", "id"])
    op.create_index("egress_entries_age", "egress_entries", ["at"])
    op.create_table(
        "egress_left_out",
        sa.Column("sandbox_id", sa.String(), primary_key=True),
        sa.Column("team_id", sa.String(), nullable=False),
        sa.Column("connections", Number, nullable=False),
        sa.Column("at", UtcTime, nullable=False),
    )
