"""Teams, keys, templates and sandboxes."""

import sqlalchemy as sa
from alembic import op

from sandlot.sql import Json, UtcTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "teams",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "keys",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("team_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("hint", sa.String(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("revoked_at", UtcTime(), nullable=True),
        sa.Column("last_used_at", UtcTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["team_id"],
            ["teams.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("keys_digest", "keys", ["digest"], unique=True)
    op.create_index("keys_team", "keys", ["team_id"], unique=False)
    op.create_table(
        "sandboxes",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("team_id", sa.String(), nullable=False),
        sa.Column("template_id", sa.String(), nullable=False),
        sa.Column("template_name", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("runtime", sa.String(), nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("resources", Json, nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("started_at", UtcTime(), nullable=False),
        sa.Column("end_at", UtcTime(), nullable=False),
        sa.Column("envd_version", sa.String(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("machine", Json, nullable=True),
        sa.Column("metadata", Json, nullable=False),
        sa.Column("env_vars", Json, nullable=False),
        sa.Column("network", Json, nullable=False),
        sa.Column("envd_token", sa.String(), nullable=True),
        sa.Column("traffic_token", sa.String(), nullable=True),
        sa.Column("timeout_s", sa.Integer(), nullable=False),
        sa.Column("on_timeout", sa.String(), nullable=False),
        sa.Column("auto_resume", sa.Boolean(), nullable=False),
        sa.Column("pause_memory", sa.Boolean(), nullable=False),
        sa.Column("pause_mode", sa.String(), nullable=True),
        sa.Column("idempotency_key", sa.String(), nullable=True),
        sa.Column("request_digest", sa.String(), nullable=True),
        sa.Column("ended_at", UtcTime(), nullable=True),
        sa.Column("end_reason", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["team_id"],
            ["teams.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("sandboxes_deadline", "sandboxes", ["state", "end_at"], unique=False)
    op.create_index("sandboxes_ended", "sandboxes", ["ended_at"], unique=False)
    op.create_index("sandboxes_idempotency", "sandboxes", ["team_id", "idempotency_key"], unique=True)
    op.create_index("sandboxes_list", "sandboxes", ["team_id", "state", "started_at", "id"], unique=False)
    op.create_table(
        "templates",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("team_id", sa.String(), nullable=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("layers", Json, nullable=False),
        sa.Column("build_id", sa.String(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.Column("runtime", sa.String(), nullable=True),
        sa.Column("resources", Json, nullable=False),
        sa.Column("env", Json, nullable=False),
        sa.Column("start_cmd", sa.String(), nullable=True),
        sa.Column("ready_cmd", sa.String(), nullable=True),
        sa.Column("default_user", sa.String(), nullable=False),
        sa.Column("default_workdir", sa.String(), nullable=False),
        sa.Column("public", sa.Boolean(), nullable=False),
        sa.Column("recipe_digest", sa.String(), nullable=False),
        sa.Column("envd_version", sa.String(), nullable=False),
        sa.Column("spawn_count", sa.Integer(), nullable=False),
        sa.Column("last_spawned_at", UtcTime(), nullable=True),
        sa.ForeignKeyConstraint(
            ["team_id"],
            ["teams.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "templates_built_in_name",
        "templates",
        ["name"],
        unique=True,
        sqlite_where=sa.text("team_id IS NULL"),
        postgresql_where=sa.text("team_id IS NULL"),
    )
    op.create_index("templates_team_name", "templates", ["team_id", "name"], unique=True)
