"""Calls of models, what budgets have spent, and limits that were set by hand."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from sandlot.sql import Number, UtcTime

revision = "p0011"
down_revision = "p0010"


def upgrade() -> None:
    op.create_table(
        "platform_model_calls",
        sa.Column("id", Number, primary_key=True, autoincrement=True),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("day", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("task", sa.String()),
        sa.Column("session", sa.String()),
        sa.Column("agent", sa.String()),
        sa.Column("repository", sa.String()),
        sa.Column("endpoint", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("input", Number, nullable=False),
        sa.Column("output", Number, nullable=False),
        sa.Column("cached", Number, nullable=False),
        sa.Column("cache_write", Number, nullable=False),
        sa.Column("cost_nano", Number, nullable=False),
        sa.Column("priced", sa.Boolean(), nullable=False),
        sa.Column("estimated", sa.Boolean(), nullable=False),
        sa.Column("milliseconds", Number, nullable=False),
    )
    op.create_index("platform_model_calls_user", "platform_model_calls", ["user_id", "at"])
    op.create_index("platform_model_calls_task", "platform_model_calls", ["task"])
    op.create_index("platform_model_calls_at", "platform_model_calls", ["at"])
    op.create_table(
        "platform_budget_spending",
        sa.Column("scope", sa.String(), primary_key=True),
        sa.Column("subject", sa.String(), primary_key=True),
        sa.Column("period", sa.String(), primary_key=True),
        sa.Column("cost_nano", Number, nullable=False),
        sa.Column("tokens", Number, nullable=False),
        sa.Column("calls", Number, nullable=False),
    )
    op.create_table(
        "platform_budget_caps",
        sa.Column("scope", sa.String(), primary_key=True),
        sa.Column("subject", sa.String(), primary_key=True),
        sa.Column("cost_usd", sa.Float()),
        sa.Column("tokens", Number),
    )
