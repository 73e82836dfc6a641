"""The console's nouns and seams: browser sessions, login links, and what can be seen of a provider's sandboxes and templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, runtime_checkable

from sandlot.platform.core.model import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserSession:
    """A browser that is logged in. Its cookie is stored as a digest only."""

    digest: str
    key_digest: str | None  # the key it logged in with, and which ends it when revoked; None: it logged in by OIDC
    user_id: str | None
    scopes: frozenset[Scope]
    created_at: datetime
    seen_at: datetime
    ends_at: datetime  # at the latest, however much it is used


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginLink:
    """An address that logs one browser in, once, as the caller with this key."""

    digest: str
    key_digest: str
    ends_at: datetime


class LoginStore(Protocol):
    async def add_session(self, session: BrowserSession) -> None: ...

    async def session(self, digest: str) -> BrowserSession | None: ...

    async def touch_session(self, digest: str, at: datetime) -> None: ...

    async def remove_session(self, digest: str) -> None: ...

    async def add_link(self, link: LoginLink) -> None: ...

    async def take_link(self, digest: str) -> LoginLink | None:
        """The link, which nobody gets a second time."""

    async def purge(self, before: datetime, unused_since: datetime) -> int:
        """Forget links and sessions that ended before, and sessions that nobody used since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSandbox:
    """A sandbox as its provider describes it."""

    id: str
    template_id: str
    template: str | None  # its name
    is_paused: bool
    started_at: datetime
    ends_at: datetime
    cpu_count: int
    memory_mb: int
    disk_mb: int
    metadata: Mapping[str, str] = field(default_factory=dict)
    isolation: str | None = None
    runtime: str | None = None
    public_traffic: bool | None = None  # whether its ports are open to everybody; None: not told


@dataclass(frozen=True, slots=True, kw_only=True)
class UsagePoint:
    at: datetime
    cpu_percent: float
    cpu_count: int
    memory_bytes: int
    memory_total: int
    disk_bytes: int
    disk_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLog:
    """A line of a log, of a sandbox or of a build."""

    at: datetime
    level: str
    message: str
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenBuild:
    id: str
    state: str
    created_at: datetime
    finished_at: datetime | None
    cpu_count: int
    memory_mb: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTemplate:
    id: str
    names: Sequence[str]
    state: str
    build_count: int
    cpu_count: int
    memory_mb: int
    disk_mb: int
    is_public: bool
    spawn_count: int
    created_at: datetime
    updated_at: datetime
    last_used_at: datetime | None
    disk_bytes: int | None = None  # what its layers take on the provider's disk, where it says so
    own_disk_bytes: int | None = None  # and what no other template shares
    builds: Sequence[SeenBuild] = ()


class Inspection(Protocol):
    """Looking at everything a provider has. Everything raises `SandboxGone`, `Unavailable`, `ProviderRefused`."""

    async def sandboxes(self) -> Sequence[SeenSandbox]:
        """All of them, newest first, whoever created them."""

    async def sandbox(self, sandbox_id: str) -> SeenSandbox: ...

    async def usage(self, sandbox_id: str, start_s: int | None, end_s: int | None) -> Sequence[UsagePoint]: ...

    async def logs(self, sandbox_id: str, *, before_ms: int | None, limit: int) -> Sequence[SeenLog]:
        """The newest entries up to a moment, oldest first; of a sandbox that has ended too, where the provider keeps them."""

    async def templates(self) -> Sequence[SeenTemplate]: ...

    async def template(self, template_id: str) -> SeenTemplate:
        """With its builds."""

    async def build_logs(self, template_id: str, build_id: str, *, since_ms: int, limit: int) -> Sequence[SeenLog]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PastSandbox:
    """A sandbox with its beginning and its end, as its provider remembers it."""

    id: str
    template: str
    state: str  # starting, running, paused or ended
    created_at: datetime
    started_at: datetime
    ended_at: datetime | None
    end_reason: str | None
    source: str | None  # the sandbox whose state it began with
    cpu_count: int
    memory_mb: int
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenMark:
    """A moment in a sandbox's life: created, paused, resumed, saved, ended, or an event of its session."""

    at: datetime
    kind: str
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLife:
    sandbox: PastSandbox
    marks: Sequence[SeenMark]
    forks: Sequence[PastSandbox]


@runtime_checkable
class Remembering(Protocol):
    """An inspection of a provider that remembers sandboxes beyond their life."""

    async def life(self, sandbox_id: str) -> SeenLife | None:
        """None: it does not know this one, or remembers nothing."""

    async def ended(self, since: datetime | None, limit: int) -> Sequence[PastSandbox]:
        """Newest first; nothing, if it does not remember."""


@runtime_checkable
class Inspectable(Protocol):
    """A provider whose sandboxes can be looked at, whoever created them."""

    @property
    def inspection(self) -> Inspection: ...


@runtime_checkable
class Forking(Protocol):
    """A provider that can make a second sandbox from a running one."""

    async def fork(self, sandbox_id: str, timeout_s: int) -> str:
        """The id of the new one. Raises `SandboxGone`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantedAddress:
    """Where a browser gets into a port."""

    url: str
    ends_at: datetime | None = None  # None: it works for as long as the port is open to everybody


@runtime_checkable
class Granting(Protocol):
    """A provider that lets a browser into a protected port by an address that works once."""

    async def grant(self, sandbox_id: str, port: int) -> GrantedAddress | None:
        """None if this provider has no such thing. Raises `SandboxGone`."""
