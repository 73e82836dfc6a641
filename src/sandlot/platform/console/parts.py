"""What the console's routes are given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sandlot.platform.console.bundle import Bundle
from sandlot.platform.console.histories import ConsoleHistories
from sandlot.platform.console.logins import Logins
from sandlot.platform.console.origins import ConsoleHosts
from sandlot.platform.console.sandboxes import ConsoleSandboxes
from sandlot.platform.console.usage import UsageSummary
from sandlot.platform.core.model import RetentionPolicy, SessionLimits, Webhook
from sandlot.platform.core.ports import DeliveryStore
from sandlot.platform.providers.health import ProviderRegistry
from sandlot.platform.sessions.queue import Queue


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding:
    """What one check of the host saw, and what to do about it."""

    name: str
    state: str  # ok, warn or fail
    detail: str
    fix: str | None


async def no_findings() -> Sequence[DoctorFinding]:
    """Of a platform without a host of its own to check."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """How this platform is set up and what it is doing, for the pages about that."""

    queue: Queue
    providers: ProviderRegistry
    default_provider: str
    provider_kinds: Mapping[str, str]
    limits: SessionLimits
    policy: RetentionPolicy
    webhooks: Sequence[Webhook]
    outbox: DeliveryStore
    doctor: Callable[[], Awaitable[Sequence[DoctorFinding]]] = no_findings


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    logins: Logins
    sandboxes: ConsoleSandboxes
    histories: ConsoleHistories
    operation: Operation
    usage: UsageSummary
    hosts: ConsoleHosts = field(default_factory=ConsoleHosts)
    bundle: Bundle = field(default_factory=Bundle)
    frames: tuple[str, ...] = ()  # whose pages the console may show inside its own
