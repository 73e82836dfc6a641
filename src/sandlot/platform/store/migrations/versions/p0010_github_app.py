"""Repositories that the server's GitHub App speaks for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "p0010"
down_revision = "p0009"


def upgrade() -> None:
    op.add_column(
        "platform_repositories", sa.Column("github_app", sa.Boolean(), nullable=False, server_default=sa.false())
    )
