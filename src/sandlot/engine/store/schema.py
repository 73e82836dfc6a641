"""The tables as the code of this version expects them. `migrations/` brings a database here; a test compares the two."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Float, ForeignKey, Index, Integer, MetaData, String, Table, text

from sandlot.sql import Json, Number, UtcTime

REVISION = "0008"  # the newest migration: a database that has it needs no look at the migrations at all

metadata = MetaData()

teams = Table(
    "teams",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("created_at", UtcTime, nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("id", String, primary_key=True),
    Column("team_id", String, ForeignKey("teams.id"), nullable=False),
    Column("name", String, nullable=False),
    Column("digest", String, nullable=False),
    Column("hint", String, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("revoked_at", UtcTime),
    Column("last_used_at", UtcTime),
    Index("keys_digest", "digest", unique=True),
    Index("keys_team", "team_id"),
)

templates = Table(
    "templates",
    metadata,
    Column("id", String, primary_key=True),
    Column("team_id", String, ForeignKey("teams.id")),
    Column("name", String, nullable=False),
    Column("layers", Json, nullable=False),
    Column("build_id", String, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Column("runtime", String),
    Column("resources", Json, nullable=False),
    Column("env", Json, nullable=False),
    Column("start_cmd", String),
    Column("ready_cmd", String),
    Column("default_user", String, nullable=False),
    Column("default_workdir", String, nullable=False),
    Column("public", Boolean, nullable=False),
    Column("recipe_digest", String, nullable=False),
    Column("envd_version", String, nullable=False),
    Column("checkpoint", String),
    Column("source", String),
    Column("node", String),
    Column("spawn_count", Integer, nullable=False),
    Column("last_spawned_at", UtcTime),
    Index("templates_team_name", "team_id", "name", unique=True),
    # NULL is never equal to NULL, so the names of built-in templates need an index of their own.
    Index(
        "templates_built_in_name",
        "name",
        unique=True,
        sqlite_where=text("team_id IS NULL"),
        postgresql_where=text("team_id IS NULL"),
    ),
)

sandboxes = Table(
    "sandboxes",
    metadata,
    Column("id", String, primary_key=True),
    Column("team_id", String, ForeignKey("teams.id"), nullable=False),
    Column("template_id", String, nullable=False),
    Column("template_name", String, nullable=False),
    Column("state", String, nullable=False),
    Column("runtime", String, nullable=False),
    Column("node", String, nullable=False),
    Column("resources", Json, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("started_at", UtcTime, nullable=False),
    Column("end_at", UtcTime, nullable=False),
    Column("envd_version", String, nullable=False),
    Column("build_id", String),
    Column("revision", Integer, nullable=False),
    Column("machine", Json),
    Column("metadata", Json, nullable=False),
    Column("env_vars", Json, nullable=False),
    Column("network", Json, nullable=False),
    Column("egress", String),  # sealed: rules and proxy of its network, which may hold credentials
    Column("envd_token", String),
    Column("traffic_token", String),
    Column("timeout_s", Integer, nullable=False),
    Column("on_timeout", String, nullable=False),
    Column("auto_resume", Boolean, nullable=False),
    Column("pause_memory", Boolean, nullable=False),
    Column("pause_mode", String),
    Column("idempotency_key", String),
    Column("request_digest", String),
    Column("ended_at", UtcTime),
    Column("end_reason", String),
    Column("source", String),
    Index("sandboxes_idempotency", "team_id", "idempotency_key", unique=True),
    Index("sandboxes_deadline", "state", "end_at"),
    Index("sandboxes_list", "team_id", "state", "started_at", "id"),
    Index("sandboxes_ended", "ended_at"),
    Index("sandboxes_source", "source"),
)

usage_samples = Table(
    "usage_samples",
    metadata,
    Column("sandbox_id", String, primary_key=True),
    Column("span_s", Integer, primary_key=True, autoincrement=False),  # for how many seconds it stands
    Column("at_ms", Number, primary_key=True, autoincrement=False),  # a number: time is divided into spans by SQL
    Column("cpu_count", Integer, nullable=False),
    Column("cpu_used_pct", Float, nullable=False),
    Column("mem_used", Number, nullable=False),
    Column("mem_total", Number, nullable=False),
    Column("mem_cache", Number, nullable=False),
    Column("disk_used", Number, nullable=False),
    Column("disk_total", Number, nullable=False),
    Index("usage_samples_age", "span_s", "at_ms"),
)

lifecycle_marks = Table(
    "lifecycle_marks",
    metadata,
    Column("sandbox_id", String, nullable=False),
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("at", UtcTime, nullable=False),
    Column("kind", String, nullable=False),
    Column("detail", String),
    Index("lifecycle_marks_sandbox", "sandbox_id", "id"),
)

builds = Table(
    "builds",
    metadata,
    Column("id", String, primary_key=True),
    Column("template_id", String, nullable=False),
    Column("team_id", String, ForeignKey("teams.id"), nullable=False),
    Column("status", String, nullable=False),
    Column("tags", Json, nullable=False),
    Column("resources", Json, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("finished_at", UtcTime),
    Column("content", Json),
    Column("problem", String),
    Column("problem_step", String),
    Index("builds_template", "template_id", "created_at"),
    Index("builds_status", "status"),
)

build_logs = Table(
    "build_logs",
    metadata,
    Column("build_id", String, ForeignKey("builds.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("at", UtcTime, nullable=False),
    Column("level", String, nullable=False),
    Column("message", String, nullable=False),
    Column("fields", Json, nullable=False),
)

tags = Table(
    "tags",
    metadata,
    Column("template_id", String, primary_key=True),
    Column("tag", String, primary_key=True),
    Column("build_id", String, ForeignKey("builds.id", ondelete="CASCADE"), nullable=False),
    Column("created_at", UtcTime, nullable=False),
)

secrets = Table(
    "secrets",
    metadata,
    Column("id", String, primary_key=True),
    Column("team_id", String, ForeignKey("teams.id"), nullable=False),
    Column("name", String, nullable=False),
    Column("version", Integer, nullable=False),
    Column("value", String, nullable=False),  # sealed
    Column("metadata", Json, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Column("last_used_at", UtcTime),
    Index("secrets_team_name", "team_id", "name", unique=True),
    Index("secrets_list", "team_id", "created_at", "id"),
)

egress_entries = Table(
    "egress_entries",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("team_id", String, nullable=False),
    Column("sandbox_id", String, nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("host", String, nullable=False),
    Column("port", Integer, nullable=False),
    Column("allowed", Boolean, nullable=False),
    Column("connections", Number, nullable=False),
    Column("bytes_out", Number, nullable=False),
    Column("bytes_in", Number, nullable=False),
    Column("rule", String),
    Column("reason", String),
    Column("secrets", Json, nullable=False),
    Index("egress_entries_sandbox", "sandbox_id", "id"),
    Index("egress_entries_age", "at"),
)

egress_left_out = Table(
    "egress_left_out",
    metadata,
    Column("sandbox_id", String, primary_key=True),
    Column("team_id", String, nullable=False),
    Column("connections", Number, nullable=False),
    Column("at", UtcTime, nullable=False),
)
