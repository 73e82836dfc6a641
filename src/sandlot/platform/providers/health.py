"""The providers by name, and their health: which answer, and when to ask the others again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandlot.platform.core.console import Inspectable
from sandlot.platform.core.errors import PlatformError, ProviderFull, Unavailable
from sandlot.platform.core.ports import Clock, Provider

log = logging.getLogger(__name__)
FIRST_WAIT, LONGEST_WAIT = timedelta(seconds=1), timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class _Down:
    since: datetime
    wait: timedelta
    ask_at: datetime
    problem: str


class ProviderRegistry:
    """All providers by name. Calls go through `calling`, which notes whether a provider is down or refuses."""

    def __init__(self, providers: Mapping[str, Provider], clock: Clock) -> None:
        self._providers, self._clock = dict(providers), clock
        self._down: dict[str, _Down] = {}
        self.on_recovery: list[Callable[[], None]] = []

    @property
    def all(self) -> Mapping[str, Provider]:
        return self._providers

    def get(self, name: str) -> Provider:
        """Raises `Unavailable` for one that the configuration no longer has."""
        try:
            return self._providers[name]
        except KeyError:
            raise Unavailable(f"provider {name!r} is not in the configuration any more", 60) from None

    async def isolation(self, name: str, sandbox_id: str | None) -> str | None:
        """What keeps a sandbox apart from its host; None if its provider does not tell, or not now."""
        provider = self._providers.get(name)
        if isinstance(provider, Inspectable) and sandbox_id is not None:
            with contextlib.suppress(PlatformError):
                return (await provider.inspection.sandbox(sandbox_id)).isolation
        return None

    def problem(self, name: str) -> str | None:
        """Why a provider cannot be used now; None if it can, or may be tried again."""
        down = self._down.get(name)
        return down.problem if down is not None and self._clock() < down.ask_at else None

    def require(self, name: str) -> Provider:
        """Raises `Unavailable` while a provider is known not to answer."""
        provider, down = self.get(name), self._down.get(name)
        if down is not None and (left := down.ask_at - self._clock()) > timedelta(0):
            raise Unavailable(down.problem, max(1, math.ceil(left.total_seconds())))
        return provider

    @asynccontextmanager
    async def calling(self, name: str) -> AsyncIterator[Provider]:
        """A provider for one call. Raises `Unavailable` at once while it is known not to answer."""
        provider = self.require(name)
        try:
            yield provider
        except ProviderFull:
            raise
        except Unavailable as error:
            self._mark_down(name, str(error))
            raise
        except PlatformError:
            self._mark_up(name)
            raise
        else:
            self._mark_up(name)

    async def run(self, interval_s: float = 1.0) -> None:
        """Ask providers that are down whether they are back, until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            for name, down in list(self._down.items()):
                if name in self._providers and self._clock() >= down.ask_at:
                    try:
                        async with self.calling(name) as provider:
                            await provider.inventory()
                    except PlatformError as error:
                        log.debug("provider %s still does not answer: %s", name, error)

    def _mark_down(self, name: str, problem: str) -> None:
        now, before = self._clock(), self._down.get(name)
        wait = min(before.wait * 2, LONGEST_WAIT) if before is not None else FIRST_WAIT
        if before is None:
            log.warning("provider %s is down: %s", name, problem)
        self._down[name] = _Down(before.since if before else now, wait, now + wait, problem)

    def _mark_up(self, name: str) -> None:
        down = self._down.pop(name, None)
        if down is not None:
            log.warning("provider %s is back after %.0f s", name, (self._clock() - down.since).total_seconds())
            for tell in self.on_recovery:
                tell()
