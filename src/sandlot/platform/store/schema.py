"""The platform's tables as the code of this version expects them. `migrations/` brings a database here."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Float, ForeignKey, Index, Integer, LargeBinary, MetaData, String, Table, false

from sandlot.sql import Json, Number, UtcTime

REVISION = "p0018"  # the newest migration
VERSION_TABLE = "platform_alembic_version"

metadata = MetaData()

facts = Table(
    "platform_facts",
    metadata,
    Column("name", String, primary_key=True),
    Column("value", String, nullable=False),
)

keys = Table(
    "platform_keys",
    metadata,
    Column("id", String, primary_key=True),
    Column("user_id", String),
    Column("name", String, nullable=False),
    Column("scopes", Json, nullable=False),
    Column("digest", String, nullable=False),
    Column("hint", String, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("revoked_at", UtcTime),
    Column("last_used_at", UtcTime),
    Index("platform_keys_digest", "digest", unique=True),
)

sessions = Table(
    "platform_sessions",
    metadata,
    Column("id", String, primary_key=True),
    Column("user_id", String, nullable=False),
    Column("session_id", String, nullable=False),
    Column("live_key", String),
    Column("status", String, nullable=False),
    Column("provider", String, nullable=False),
    Column("timeout_s", Integer, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("last_used_at", UtcTime, nullable=False),
    Column("template_id", String),
    Column("agent_type", String),
    Column("provider_sandbox_id", String),
    Column("envs", Json, nullable=False),
    Column("metadata", Json, nullable=False),
    Column("network", Json),
    Column("backend", String),
    Column("alternatives", Json),
    Column("queued_at", UtcTime),
    Column("started_at", UtcTime),
    Column("expires_at", UtcTime),
    Column("ended_at", UtcTime),
    Column("problem", String),
    Column("revision", Integer, nullable=False),
    Index("platform_sessions_live", "live_key", unique=True),
    Index("platform_sessions_list", "user_id", "created_at", "id"),
    Index("platform_sessions_status", "status"),
)

commands = Table(
    "platform_commands",
    metadata,
    Column("id", String, primary_key=True),
    Column("user_id", String, nullable=False),
    Column("sandbox_id", String, nullable=False),
    Column("session_id", String, nullable=False),
    Column("pid", Number, nullable=False),
    Column("command", String, nullable=False),
    Column("status", String, nullable=False),
    Column("started_at", UtcTime, nullable=False),
    Column("ended_at", UtcTime),
    Column("exit_code", Number),
    Column("problem", String),
    Column("revision", Integer, nullable=False),
    Index("platform_commands_status", "status", "sandbox_id"),
)

events = Table(
    "platform_events",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("type", String, nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("user_id", String, nullable=False),
    Column("subject_kind", String, nullable=False),
    Column("subject_id", String, nullable=False),
    Column("session_id", String),
    Column("data", Json, nullable=False),
    Index("platform_events_user", "user_id", "id"),
    Index("platform_events_subject", "subject_kind", "subject_id", "id"),
    Index("platform_events_at", "at"),
    sqlite_autoincrement=True,  # a number is never used twice, not even when the newest events were purged
)

deliveries = Table(
    "platform_deliveries",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("webhook", String, nullable=False),
    Column("event_id", Number, ForeignKey("platform_events.id", ondelete="CASCADE"), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_at", UtcTime),  # empty: given up
    Column("problem", String),
    Index("platform_deliveries_due", "next_at", "id"),
    Index("platform_deliveries_event", "event_id"),
    sqlite_autoincrement=True,
)

tasks = Table(
    "platform_tasks",
    metadata,
    Column("id", String, primary_key=True),
    Column("user_id", String, nullable=False),
    Column("status", String, nullable=False),
    Column("repository", String, nullable=False),
    Column("parent", String),
    Column("created_at", UtcTime, nullable=False),
    Column("once_key", String),
    Column("lease_owner", String),
    Column("lease_until", UtcTime),
    Column("record", Json, nullable=False),  # the rest of it
    Column("revision", Integer, nullable=False),
    Index("platform_tasks_once", "once_key", unique=True),
    Index("platform_tasks_list", "user_id", "created_at", "id"),
    Index("platform_tasks_status", "status"),
)

task_steps = Table(
    "platform_task_steps",
    metadata,
    Column("task_id", String, ForeignKey("platform_tasks.id", ondelete="CASCADE"), primary_key=True),
    Column("run", Integer, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("name", String, primary_key=True),
    Column("status", String, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("started_at", UtcTime),
    Column("ended_at", UtcTime),
    Column("problem", String),
)

timeline = Table(
    "platform_timeline",
    metadata,
    Column("seq", Number, primary_key=True, autoincrement=True),
    Column("task_id", String, ForeignKey("platform_tasks.id", ondelete="CASCADE"), nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("kind", String, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("text", String, nullable=False),
    Column("data", Json, nullable=False),
    Column("raw", String),
    Index("platform_timeline_task", "task_id", "seq"),
    sqlite_autoincrement=True,
)

task_streams = Table(
    "platform_task_streams",
    metadata,
    Column("task_id", String, ForeignKey("platform_tasks.id", ondelete="CASCADE"), primary_key=True),
    Column("stream", String, primary_key=True),
    Column("lines", Number, nullable=False),  # how many were read
)

repositories = Table(
    "platform_repositories",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("forge", String, nullable=False),
    Column("url", String),
    Column("default_branch", String, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("user_id", String),
    Column("token_env", String),
    Column("token", String),
    Column("github_app", Boolean, nullable=False, server_default=false()),
    Column("problem", String),
    Column("revision", Integer, nullable=False),
    Index("platform_repositories_name", "name", unique=True),
)

pull_requests = Table(
    "platform_pull_requests",
    metadata,
    Column("id", String, primary_key=True),
    Column("repository_id", String, ForeignKey("platform_repositories.id", ondelete="CASCADE"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("open_key", String),
    Column("title", String, nullable=False),
    Column("state", String, nullable=False),
    Column("head", String, nullable=False),
    Column("base", String, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Column("body", String, nullable=False),
    Column("draft", Boolean, nullable=False),
    Column("author", String, nullable=False),
    Column("labels", Json, nullable=False),
    Column("reviewers", Json, nullable=False),
    Column("checks", Json, nullable=False),
    Column("merged_at", UtcTime),
    Column("merge_sha", String),
    Column("base_sha", String),
    Column("head_sha", String),
    Column("revision", Integer, nullable=False),
    Index("platform_pull_requests_open", "open_key", unique=True),
    Index("platform_pull_requests_number", "repository_id", "number", unique=True),
)

pull_comments = Table(
    "platform_pull_comments",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("pull_id", String, ForeignKey("platform_pull_requests.id", ondelete="CASCADE"), nullable=False),
    Column("author", String, nullable=False),
    Column("body", String, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("path", String),
    Column("line", Integer),
    Column("side", String),
    Column("marker", String),
    Index("platform_pull_comments_marker", "pull_id", "marker", unique=True),
    sqlite_autoincrement=True,
)

browser_sessions = Table(
    "platform_browser_sessions",
    metadata,
    Column("digest", String, primary_key=True),
    Column("key_digest", String),
    Column("user_id", String),
    Column("scopes", Json, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("seen_at", UtcTime, nullable=False),
    Column("ends_at", UtcTime, nullable=False),
)

login_links = Table(
    "platform_login_links",
    metadata,
    Column("digest", String, primary_key=True),
    Column("key_digest", String, nullable=False),
    Column("ends_at", UtcTime, nullable=False),
)

model_calls = Table(
    "platform_model_calls",
    metadata,
    Column("id", Number, primary_key=True, autoincrement=True),
    Column("at", UtcTime, nullable=False),
    Column("day", String, nullable=False),
    Column("user_id", String, nullable=False),
    Column("task", String),
    Column("session", String),
    Column("agent", String),
    Column("repository", String),
    Column("endpoint", String, nullable=False),
    Column("model", String, nullable=False),
    Column("status", Integer, nullable=False),
    Column("input", Number, nullable=False),
    Column("output", Number, nullable=False),
    Column("cached", Number, nullable=False),
    Column("cache_write", Number, nullable=False),
    Column("cost_nano", Number, nullable=False),
    Column("priced", Boolean, nullable=False),
    Column("estimated", Boolean, nullable=False),
    Column("milliseconds", Number, nullable=False),
    Index("platform_model_calls_user", "user_id", "at"),
    Index("platform_model_calls_task", "task"),
    Index("platform_model_calls_at", "at"),
)

budget_spending = Table(
    "platform_budget_spending",
    metadata,
    Column("scope", String, primary_key=True),
    Column("subject", String, primary_key=True),
    Column("period", String, primary_key=True),  # a month; empty for tasks and sessions
    Column("cost_nano", Number, nullable=False),
    Column("tokens", Number, nullable=False),
    Column("calls", Number, nullable=False),
)

budget_caps = Table(
    "platform_budget_caps",
    metadata,
    Column("scope", String, primary_key=True),
    Column("subject", String, primary_key=True),
    Column("cost_usd", Float),
    Column("tokens", Number),
)

usage = Table(
    "platform_usage",
    metadata,
    Column("day", String, primary_key=True),
    Column("user_id", String, primary_key=True),
    Column("repository", String, primary_key=True),
    Column("agent", String, primary_key=True),
    Column("seconds", Float, nullable=False),
    Column("cpu_s", Float, nullable=False),
    Column("memory_gib_s", Float, nullable=False),
    Column("starts", Integer, nullable=False),
)

meters = Table(
    "platform_meters",
    metadata,
    Column("provider", String, primary_key=True),
    Column("sandbox_id", String, primary_key=True),
    Column("charged_until", UtcTime, nullable=False),
)

audit = Table(
    "platform_audit",
    metadata,
    Column("seq", Number, primary_key=True, autoincrement=False),
    Column("at", UtcTime, nullable=False),
    Column("actor", String, nullable=False),
    Column("action", String, nullable=False),
    Column("target", String, nullable=False),
    Column("status", Integer, nullable=False),
    Column("data", Json, nullable=False),
    Column("previous", String, nullable=False),
    Column("digest", String, nullable=False),
)

trigger_rules = Table(
    "platform_trigger_rules",
    metadata,
    Column("name", String, primary_key=True),
    Column("rule", Json),  # None: the rule is in the configuration file
    Column("paused_at", UtcTime),
    Column("paused_reason", String),
    Column("resumed_at", UtcTime),
    Column("created_at", UtcTime),
)

github_deliveries = Table(
    "platform_github_deliveries",
    metadata,
    Column("seq", Number, primary_key=True, autoincrement=True),
    Column("id", String, nullable=False),
    Column("event", String, nullable=False),
    Column("action", String, nullable=False),
    Column("repository", String, nullable=False),
    Column("sender", String, nullable=False),
    Column("received_at", UtcTime, nullable=False),
    Column("status", String, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_at", UtcTime),
    Column("outcome", String, nullable=False),
    Column("tasks", Json, nullable=False),
    Column("replays", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index("platform_github_deliveries_id", "id", unique=True),
    Index("platform_github_deliveries_due", "status", "next_at"),
    sqlite_autoincrement=True,
)

browsers = Table(
    "platform_browsers",
    metadata,
    Column("id", String, primary_key=True),
    Column("user_id", String, nullable=False),
    Column("status", String, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("started_at", UtcTime),
    Column("ended_at", UtcTime),
    Column("record", Json, nullable=False),  # the rest of it
    Column("revision", Integer, nullable=False),
    Index("platform_browsers_list", "user_id", "created_at", "id"),
    Index("platform_browsers_status", "status"),
)

browser_contexts = Table(
    "platform_browser_contexts",
    metadata,
    Column("id", String, primary_key=True),
    Column("user_id", String, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Column("name", String),
    Column("name_key", String),
    Column("blob", String),
    Column("key", String),
    Column("revision", Integer, nullable=False),
    Index("platform_browser_contexts_name", "name_key", unique=True),
)

browser_extensions = Table(
    "platform_browser_extensions",
    metadata,
    Column("id", String, primary_key=True),
    Column("user_id", String, nullable=False),
    Column("file_name", String, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("blob", String, nullable=False),
    Column("key", String, nullable=False),
    Column("revision", Integer, nullable=False),
)
