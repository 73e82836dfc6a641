"""Browsers: one Chromium in a sandbox of its own for each, the profiles they can begin with, and the seams to where both are kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from sandlot.platform.core.events import Event
from sandlot.platform.core.ports import AggregateStore

BROWSER = "browser"  # the kind of subject that browsers are in events


class BrowserStatus(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    COMPLETED = "completed"
    TIMED_OUT = "timed_out"
    FAILED = "failed"


_ENDS = frozenset({BrowserStatus.COMPLETED, BrowserStatus.TIMED_OUT, BrowserStatus.FAILED})
BROWSER_MOVES: Mapping[BrowserStatus, frozenset[BrowserStatus]] = {
    BrowserStatus.STARTING: frozenset({BrowserStatus.RUNNING, BrowserStatus.ENDING}),
    BrowserStatus.RUNNING: frozenset({BrowserStatus.ENDING}),
    BrowserStatus.ENDING: _ENDS,
    **{status: frozenset() for status in _ENDS},
}
LIVE_BROWSERS = frozenset({BrowserStatus.STARTING, BrowserStatus.RUNNING, BrowserStatus.ENDING})


class BrowserEventType(StrEnum):
    STARTED = "browser.started"
    ENDED = "browser.ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewport:
    width: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyRule:
    """Where requests go out. `server` None: without a proxy. `pattern` limits it to hosts."""

    server: str | None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    pattern: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserOptions:
    """How a browser behaves while it runs."""

    viewport: Viewport | None = None
    allowed_domains: tuple[str, ...] = ()
    keeps_log: bool = True
    is_recorded: bool = False
    ignores_certificates: bool = False
    block_ads: bool = False
    extension_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserRequest:
    """What a caller asks for. Proxies are not kept: they may hold passwords."""

    user_id: str
    timeout_s: int | None = None
    keep_alive: bool = False
    metadata: Mapping[str, object] = field(default_factory=dict)
    options: BrowserOptions = BrowserOptions()
    proxies: tuple[ProxyRule, ...] = ()
    context_id: str | None = None
    persist: bool = False
    region: str = "us-west-2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Browser:
    """One browser over its whole life. It is ended by its user, its time, or by being left alone."""

    id: str
    user_id: str
    status: BrowserStatus
    provider: str
    timeout_s: int
    keep_alive: bool
    created_at: datetime
    updated_at: datetime
    expires_at: datetime
    options: BrowserOptions = BrowserOptions()
    metadata: Mapping[str, object] = field(default_factory=dict)
    region: str = "us-west-2"
    context_id: str | None = None
    persist: bool = False
    provider_sandbox_id: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: BrowserStatus | None = None  # what it is to become when it has ended
    problem: str | None = None  # why it ended, if nobody asked for it
    proxy_bytes: int = 0
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserContext:
    """A profile that browsers can begin with. `blob` names the file that holds it, sealed with `key`; None: it is empty."""

    id: str
    user_id: str
    created_at: datetime
    updated_at: datetime
    name: str | None = None
    blob: str | None = None
    key: str | None = field(default=None, repr=False)
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserExtension:
    """An extension that browsers can be started with."""

    id: str
    user_id: str
    file_name: str
    created_at: datetime
    blob: str
    key: str = field(repr=False)
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserLimits:
    """How many browsers may run, for how long, and what the operator has for them."""

    provider: str
    template: str = "chromium"
    running: int = 50
    running_per_user: int = 25
    timeout_s: int = 3600
    is_recorded: bool = False
    proxy: ProxyRule | None = None
    keep_ended_s: int = 7 * 86400


class BrowserStore(AggregateStore[Browser], Protocol):
    async def query(
        self,
        *,
        user_id: str | None = None,
        statuses: Collection[BrowserStatus] | None = None,
        limit: int | None = None,
    ) -> Sequence[Browser]:
        """Newest first."""

    async def minutes(self, user_id: str) -> float:
        """How long this user's browsers ran, all together; those that were forgotten do not count."""

    async def purge(self, ended_before: datetime) -> Sequence[str]:
        """Forget those that ended before; returns their ids."""


class ContextStore(AggregateStore[BrowserContext], Protocol):
    async def by_name(self, user_id: str, name: str) -> BrowserContext | None: ...

    async def remove(self, id: str, *events: Event) -> None: ...


class ExtensionStore(AggregateStore[BrowserExtension], Protocol):
    async def remove(self, id: str, *events: Event) -> None: ...
