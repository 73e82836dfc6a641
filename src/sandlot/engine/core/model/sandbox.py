"""Sandboxes and who owns them: the records of the control plane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from sandlot.engine.core.model.machine import Machine, PauseMode, Resources
from sandlot.engine.core.model.network import NetworkPolicy


class State(StrEnum):
    """Where a sandbox is in its life. `control.sandbox_states` says which may follow which."""

    CREATING = "creating"
    RUNNING = "running"
    CAPTURING = "capturing"  # its state is being written for a snapshot or forks; it goes on in a moment
    PAUSING = "pausing"
    PAUSED = "paused"
    RESUMING = "resuming"
    STOPPING = "stopping"
    ENDED = "ended"


class OnTimeout(StrEnum):
    KILL = "kill"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    id: str
    name: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An API key as stored: the secret itself is shown once, at creation, and never kept."""

    id: str
    team_id: str
    name: str
    digest: str  # sha256 hex of the whole secret
    hint: str  # e.g. "e2b_1a2b…9f": enough to recognise it in a list
    created_at: datetime
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """A sandbox's row. Only `control.sandbox_states` writes it, by compare-and-set on `revision`."""

    id: str
    team_id: str
    template_id: str
    template_name: str
    state: State
    runtime: str
    node: str
    resources: Resources
    created_at: datetime
    started_at: datetime
    end_at: datetime  # the deadline; `control.deadlines` acts on it
    envd_version: str
    build_id: str | None = None  # the build of the template that it was made from; None: from before this was kept
    revision: int = 0
    machine: Machine | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    env_vars: Mapping[str, str] = field(default_factory=dict)
    network: NetworkPolicy = field(default_factory=NetworkPolicy)
    envd_token: str | None = None  # None: an unsecured sandbox of the older SDK generation
    traffic_token: str | None = None
    timeout_s: int = 300
    on_timeout: OnTimeout = OnTimeout.KILL
    auto_resume: bool = False
    pause_memory: bool = True  # what a pause by timeout keeps
    pause_mode: PauseMode | None = None  # set while paused
    idempotency_key: str | None = None
    request_digest: str | None = None  # of the request that used the key, to tell a repeat from a different request
    ended_at: datetime | None = None
    end_reason: str | None = None  # "killed", "timeout", "out of memory", ...: for people
    source: str | None = None  # the sandbox whose state it began with: it is a fork, or made from a snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleMark:
    """A moment in a sandbox's life that its numbers are read against: created, paused, resumed, saved, ended."""

    at: datetime
    kind: str
    detail: str | None = None
