"""The seams of triggers: where GitHub's deliveries are kept, and who acts on one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from sandlot.platform.core.events import Event
from sandlot.platform.core.triggers import GitHubDelivery, Handled, InboxStatus, RuleRecord


class InboxStore(Protocol):
    async def add(self, arrived: Sequence[tuple[GitHubDelivery, bytes]]) -> Sequence[bool]:
        """Keep them with their bodies, in one transaction; false for one that is there already."""

    async def claim(self, now: datetime, until: datetime, limit: int) -> Sequence[GitHubDelivery]:
        """Those that are due, oldest first; they are due again at `until`, should we not come to an end."""

    async def release(self, ids: Sequence[str], now: datetime) -> None:
        """Those that were claimed and not acted on are due at once."""

    async def get(self, id: str) -> GitHubDelivery | None: ...

    async def body(self, id: str) -> bytes:
        """As GitHub sent it."""

    async def settle(self, delivery: GitHubDelivery) -> None:
        """Write what became of it."""

    async def list(self, limit: int, status: InboxStatus | None = None) -> Sequence[GitHubDelivery]:
        """Newest first."""

    async def purge(self, before: datetime) -> None:
        """Forget what came before and does not wait."""


class RuleStore(Protocol):
    async def all(self) -> Sequence[RuleRecord]:
        """By name."""

    async def put(self, record: RuleRecord, *events: Event) -> None:
        """Add it, or replace the one of this name."""

    async def remove(self, name: str, *events: Event) -> bool:
        """Whether it was there."""


Handle = Callable[[GitHubDelivery, Mapping[str, Any]], Awaitable[Handled]]
