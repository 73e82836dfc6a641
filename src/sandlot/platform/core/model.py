"""The platform's nouns: sessions and the moves they may make, keys, deliveries, policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from sandlot.platform.core.backends import Capability
from sandlot.platform.core.events import Event, matches_type


class SessionStatus(StrEnum):
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    RESUMING = "resuming"
    DELETING = "deleting"
    DELETED = "deleted"
    FAILED = "failed"


S = SessionStatus
MOVES: Mapping[SessionStatus, frozenset[SessionStatus]] = {
    S.QUEUED: frozenset({S.STARTING, S.RESUMING, S.RUNNING, S.PAUSED, S.FAILED, S.DELETING, S.DELETED}),
    S.STARTING: frozenset({S.RUNNING, S.QUEUED, S.FAILED, S.DELETING}),
    S.RUNNING: frozenset({S.PAUSING, S.PAUSED, S.DELETING, S.DELETED}),
    S.PAUSING: frozenset({S.PAUSED, S.RUNNING, S.DELETING, S.DELETED}),
    S.PAUSED: frozenset({S.QUEUED, S.RUNNING, S.DELETING, S.DELETED}),
    S.RESUMING: frozenset({S.RUNNING, S.QUEUED, S.PAUSED, S.DELETING, S.DELETED}),
    S.DELETING: frozenset({S.DELETED}),
    S.DELETED: frozenset(),
    S.FAILED: frozenset({S.DELETED}),
}
ACTIVE = frozenset({S.STARTING, S.RUNNING, S.PAUSING, S.RESUMING})  # what counts against the limits
TERMINAL = frozenset({S.DELETED, S.FAILED})
LIVE = frozenset(SessionStatus) - TERMINAL


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundSecret:
    """A secret that leaves with requests to some hosts. Inside there is a word that stands for it."""

    name: str
    hosts: tuple[str, ...]

    @property
    def placeholder(self) -> str:
        return f"SECRET_PLACEHOLDER_{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxNetwork:
    """What a sandbox may reach. `allow` are hosts that may be reached although `internet` is off."""

    internet: bool = True
    allow: tuple[str, ...] = ()
    is_private: bool = False  # its ports are for the platform alone
    secrets: tuple[BoundSecret, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOption:
    """Where a session may start."""

    provider: str
    template: str | None
    backend: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One user's sandbox over its whole life, at whichever provider."""

    id: str  # the id that callers use; not the provider's
    user_id: str
    session_id: str  # the caller's own name for it, one per user
    status: SessionStatus
    provider: str
    timeout_s: int
    created_at: datetime
    last_used_at: datetime
    template_id: str | None = None
    agent_type: str | None = None
    provider_sandbox_id: str | None = None
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)  # stored only until the sandbox is created
    metadata: Mapping[str, str] = field(default_factory=dict)
    network: SandboxNetwork = SandboxNetwork()
    backend: str | None = None
    alternatives: tuple[StartOption, ...] = ()  # where it starts if it cannot start here
    queued_at: datetime | None = None
    started_at: datetime | None = None
    expires_at: datetime | None = None  # when it is paused, or deleted, unless somebody asks for more time
    ended_at: datetime | None = None
    problem: str | None = None  # why it failed, was lost, or still waits
    revision: int = 0

    @property
    def live_key(self) -> str | None:
        """Unique in the store: one live session per user and name. None once it has ended."""
        return None if self.status in TERMINAL else f"{self.user_id}\n{self.session_id}"


class Scope(StrEnum):
    READ = "read"
    WRITE = "write"
    ADMIN = "admin"  # acts for every user


@dataclass(frozen=True, slots=True, kw_only=True)
class UserKey:
    """A caller's key, as it is stored: never the secret itself."""

    id: str
    user_id: str | None  # None: not bound to a user, for admin keys only
    name: str
    scopes: frozenset[Scope]
    digest: str
    hint: str
    created_at: datetime
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who is asking, and what they may do."""

    user_id: str | None
    scopes: frozenset[Scope]

    @property
    def is_admin(self) -> bool:
        return Scope.ADMIN in self.scopes


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookBacklog:
    """What has not reached one webhook. `problem`: why the newest of it did not."""

    waiting: int = 0
    given_up: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A pending delivery of one event to one webhook."""

    id: int
    webhook: str
    event: Event
    attempts: int
    next_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """What a provider is asked to create."""

    session: str
    template: str | None
    timeout_s: int
    envs: Mapping[str, str] = field(repr=False)
    metadata: Mapping[str, str]
    network: SandboxNetwork = SandboxNetwork()
    is_kept: bool = True  # paused when its time is over; else it ends


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSandbox:
    """A sandbox at a provider that this platform created."""

    id: str
    session: str
    is_paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PortAddress:
    """Where the platform itself reaches a port of a sandbox, with what it has to send along."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxProcess:
    """A process that was started through the provider, as the sandbox describes it: data, not truth."""

    pid: int
    command: str  # the shell command; for a terminal, its program


@dataclass(frozen=True, slots=True)
class TerminalSize:
    cols: int = 80
    rows: int = 24


class FileChangeKind(StrEnum):
    CREATED = "created"
    WRITTEN = "written"
    REMOVED = "removed"
    RENAMED = "renamed"
    MODE_CHANGED = "mode_changed"


@dataclass(frozen=True, slots=True)
class FileChange:
    """A change below a watched directory. `path` is relative to it."""

    path: str
    kind: FileChangeKind


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """A file, directory or link in a sandbox, as the sandbox describes it."""

    name: str
    path: str
    type: str  # file, dir or symlink
    size: int
    mode: int
    modified_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutcome:
    """How a command ended. A failing command is a result, not an error."""

    output: str
    stdout: str
    stderr: str
    exit_code: int
    timed_out: bool = False
    truncated: bool = False


class CommandStatus(StrEnum):
    RUNNING = "running"
    ENDED = "ended"


COMMAND_MOVES: Mapping[CommandStatus, frozenset[CommandStatus]] = {
    CommandStatus.RUNNING: frozenset({CommandStatus.ENDED}),
    CommandStatus.ENDED: frozenset(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundCommand:
    """A command that keeps its sandbox from idle pause while it runs; found again after a restart by its pid."""

    id: str
    user_id: str
    sandbox_id: str
    session_id: str
    pid: int
    command: str  # the beginning of it
    status: CommandStatus
    started_at: datetime
    ended_at: datetime | None = None
    exit_code: int | None = None
    problem: str | None = None  # why the exit code is not known
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """How many sandboxes may run at once. Further requests wait in the queue."""

    running: int = 20
    running_per_user: int = 5
    sessions_per_user: int = 50  # paused ones too
    queue_length: int = 1000
    queue_timeout_s: int = 600


class TimeoutAction(StrEnum):
    PAUSE = "pause"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """What happens to sandboxes that nobody uses. 0 switches a rule off."""

    idle_pause_s: int = 600
    max_age_s: int = 7 * 86400
    on_timeout: TimeoutAction = TimeoutAction.PAUSE
    keep_events_s: int = 7 * 86400
    keep_ended_s: int = 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """What sandboxes of one type of agent get instead of the defaults."""

    provider: str | None = None
    template: str | None = None
    timeout_s: int | None = None
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    backend: str | None = None
    capabilities: frozenset[Capability] = frozenset()  # what its backend must have


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A receiver of events over HTTP. `types` are patterns, such as `ready` or `task.*`."""

    name: str
    url: str
    secret: str = field(repr=False)
    types: frozenset[str] | None = None
    users: frozenset[str] | None = None
    private: bool = False  # its name may lead to an address inside

    def wants(self, event: Event) -> bool:
        wants_type = self.types is None or any(matches_type(pattern, event.type) for pattern in self.types)
        return wants_type and (self.users is None or event.user_id in self.users)
