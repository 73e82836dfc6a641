"""What a client gets back about tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

TaskState = Literal["todo", "queued", "working", "needs_you", "review", "done", "failed", "cancelled"]
RESTING: frozenset[TaskState] = frozenset({"needs_you", "review", "done", "failed", "cancelled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimits:
    """How much a task may use. `attempts`: how often its agent may try until the checks pass."""

    seconds: int = 3600
    turns: int | None = None
    cost_usd: float | None = None
    attempts: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNetwork:
    """What the sandbox reaches. `allow` are hosts that it reaches although `internet` is off."""

    internet: bool = True
    allow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCheck:
    """`exit_code` is None until it was run."""

    command: str
    exit_code: int | None
    output: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPullRequest:
    number: int
    url: str
    state: Literal["open", "merged", "closed"]
    draft: bool = False
    checks: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    input: int = 0
    output: int = 0
    cached: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    files: int = 0
    added: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo:
    """A task as it was when it was asked for. `reason` says why it is in its state."""

    id: str
    title: str
    prompt: str
    state: TaskState
    reason: str | None
    repository: str
    base: str | None
    branch: str
    agent: str
    created_at: datetime
    user_id: str
    revision: int
    model: str | None = None
    template: str | None = None
    provider: str | None = None
    command: str | None = None
    checks: tuple[TaskCheck, ...] = ()
    limits: TaskLimits = TaskLimits()
    network: TaskNetwork = TaskNetwork()
    secrets: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    parent: str | None = None
    blocked_by: tuple[str, ...] = ()
    attempt_count: int = 1
    agents: tuple[str, ...] = ()
    issue: str | None = None
    draft_on_failure: bool = False
    pull_request: TaskPullRequest | None = None
    cost_usd: float | None = None
    tokens: Tokens = Tokens()
    changes: Changes = Changes()
    last_action: str | None = None
    sandbox_id: str | None = None
    isolation: str | None = None
    artifacts: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    queued_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def is_resting(self) -> bool:
        """Nothing happens by itself any more: it is over, or it waits for a person."""
        return self.state in RESTING


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    """One thing that happened. `kind` says what is in `data`; `raw` is the agent's own line."""

    seq: int
    kind: str
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    at: datetime | None = None
    raw: str | None = field(default=None, repr=False)
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class TaskNews:
    """What came over a task's stream: an entry, the task as it is now, or both."""

    entry: TimelineEntry | None = None
    task: TaskInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStep:
    name: str
    status: str
    attempt: int
    number: int
    started_at: datetime | None = None
    ended_at: datetime | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAttempt:
    number: int
    agent: str
    state: str
    checks: tuple[TaskCheck, ...] = ()
    changes: Changes = Changes()
    cost_usd: float | None = None
    seconds: float = 0.0
    sandbox_id: str | None = None
    problem: str | None = None
    chosen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    path: str
    size: int
