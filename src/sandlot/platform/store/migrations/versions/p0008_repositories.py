"""Repositories, and pull requests of those that are hosted here."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from sandlot.sql import Json, Number, UtcTime

revision = "p0008"
down_revision = "p0005"


def upgrade() -> None:
    op.create_table(
        "platform_repositories",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("forge", sa.String(), nullable=False),
        sa.Column("url", sa.String()),
        sa.Column("default_branch", sa.String(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("user_id", sa.String()),
        sa.Column("token_env", sa.String()),
        sa.Column("token", sa.String()),
        sa.Column("problem", sa.String()),
        sa.Column("revision", sa.Integer(), nullable=False),
    )
    op.create_index("platform_repositories_name", "platform_repositories", ["name"], unique=True)
    _pull_requests()
    op.create_table(
        "platform_pull_comments",
        sa.Column("id", Number, primary_key=True, autoincrement=True),
        sa.Column(
            "pull_id", sa.String(), sa.ForeignKey("platform_pull_requests.id", ondelete="CASCADE"), nullable=False
        ),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("body", sa.String(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("path", sa.String()),
        sa.Column("line", sa.Integer()),
        sa.Column("side", sa.String()),
        sa.Column("marker", sa.String()),
        sqlite_autoincrement=True,
    )
    op.create_index("platform_pull_comments_marker", "platform_pull_comments", ["pull_id", "marker"], unique=True)


def _pull_requests() -> None:
    op.create_table(
        "platform_pull_requests",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column(
            "repository_id", sa.String(), sa.ForeignKey("platform_repositories.id", ondelete="CASCADE"), nullable=False
        ),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("open_key", sa.String()),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("head", sa.String(), nullable=False),
        sa.Column("base", sa.String(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.Column("body", sa.String(), nullable=False),
        sa.Column("draft", sa.Boolean(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("labels", Json, nullable=False),
        sa.Column("reviewers", Json, nullable=False),
        sa.Column("checks", Json, nullable=False),
        sa.Column("merged_at", UtcTime()),
        sa.Column("merge_sha", sa.String()),
        sa.Column("base_sha", sa.String()),
        sa.Column("head_sha", sa.String()),
        sa.Column("revision", sa.Integer(), nullable=False),
    )
    op.create_index("platform_pull_requests_open", "platform_pull_requests", ["open_key"], unique=True)
    op.create_index("platform_pull_requests_number", "platform_pull_requests", ["repository_id", "number"], unique=True)
