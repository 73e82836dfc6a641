"""Secrets of teams, and what of a sandbox's network may hold credentials."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from sandlot.sql import Json, UtcTime

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("sandboxes", sa.Column("egress", sa.String()))
    op.create_table(
        "secrets",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("team_id", sa.String(), sa.ForeignKey("teams.id"), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.Column("metadata", Json, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("updated_at", UtcTime, nullable=False),
        sa.Column("last_used_at", UtcTime),
    )
    op.create_index("secrets_team_name", "secrets", ["team_id", "name"], unique=True)
    op.create_index("secrets_list", "secrets", ["team_id", "created_at", "id"])
