"""What sandboxes used and went through is kept: samples, marks, and whose state a sandbox began with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from sandlot.sql import Number, UtcTime

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("sandboxes", sa.Column("source", sa.String()))
    op.create_index("sandboxes_source", "sandboxes", ["source"])
    op.create_table(
        "usage_samples",
        sa.Column("sandbox_id", sa.String(), primary_key=True),
        sa.Column("span_s", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("at_ms", Number, primary_key=True, autoincrement=False),
        sa.Column("cpu_count", sa.Integer(), nullable=False),
        sa.Column("cpu_used_pct", sa.Float(), nullable=False),
        sa.Column("mem_used", Number, nullable=False),
        sa.Column("mem_total", Number, nullable=False),
        sa.Column("mem_cache", Number, nullable=False),
        sa.Column("disk_used", Number, nullable=False),
        sa.Column("disk_total", Number, nullable=False),
    )
    op.create_index("usage_samples_age", "usage_samples", ["span_s", "at_ms"])
    op.create_table(
        "lifecycle_marks",
        sa.Column("sandbox_id", sa.String(), nullable=False),
        sa.Column("id", Number, primary_key=True, autoincrement=True),
        sa.Column("at", UtcTime, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("detail", sa.String()),
    )
    op.create_index("lifecycle_marks_sandbox", "lifecycle_marks", ["sandbox_id", "id"])
