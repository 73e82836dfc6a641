"""The idle freezer: freezes machines that nobody uses, and thaws them before anybody notices.

An idle machine still costs the host: a gVisor kernel wakes up some hundred times a second. Such a machine is frozen when
nothing has gone in or out for a while, and thawed before the next thing goes in. What keeps this invisible is one rule: a use
is counted before anything else happens, and only a machine without uses is frozen, under a lock that every later use waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from sandlot.engine.core.errors import EngineError, NotFound

log = logging.getLogger(__name__)

LOOK_S = 1.0
LONGEST_S = 60.0  # how often a machine in which something runs is asked at least
SETTLE_S = 0.1  # between the question and the freezing: what the guest needs to see that our connection is closed
FREEZE_LIMIT_S = 2.0
ASK_AT_ONCE = 4


class Freezable(Protocol):
    """What the freezer needs of machines; the machine factory has it."""

    async def is_idle(self, sandbox_id: str) -> bool: ...

    async def freeze(self, sandbox_id: str) -> None: ...

    async def thaw(self, sandbox_id: str) -> None: ...


@dataclass(slots=True)
class _Watched:
    """What is known of one machine."""

    used_at: float
    patience_s: float
    uses: int = 0
    is_frozen: bool = False  # or about to be
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class IdleFreezer:
    """Machines of running sandboxes, and who uses them. 0 seconds of patience: nothing is ever frozen."""

    def __init__(self, machines: Freezable, *, patience_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._machines, self._patience_s, self._now = machines, patience_s, now
        self._watched: dict[str, _Watched] = {}
        self._asking = asyncio.Semaphore(ASK_AT_ONCE)

    def watch(self, sandbox_id: str) -> None:
        """The machine runs from now on, for a sandbox."""
        self._watched.setdefault(sandbox_id, _Watched(used_at=self._now(), patience_s=self._patience_s))

    def forget(self, sandbox_id: str) -> None:
        """The machine is gone, or paused."""
        if watched := self._watched.pop(sandbox_id, None):
            watched.uses += 1  # for a look that is under way: this one is never frozen again

    def count(self) -> int:
        """How many machines are frozen."""
        return sum(each.is_frozen for each in self._watched.values())

    def frozen_since(self, sandbox_id: str) -> float | None:
        """When a frozen machine was last used; None: it runs."""
        watched = self._watched.get(sandbox_id)
        return watched.used_at if watched is not None and watched.is_frozen else None

    @contextlib.asynccontextmanager
    async def thawed(self, sandbox_id: str) -> AsyncIterator[None]:
        """While inside, the machine runs. One that is not watched was never frozen from here."""
        watched = self._watched.get(sandbox_id)
        if watched is None:
            yield
            return
        watched.uses += 1
        try:
            if watched.is_frozen:
                await self._thaw(sandbox_id, watched)
            yield
        finally:
            watched.uses -= 1
            watched.used_at, watched.patience_s = self._now(), self._patience_s

    async def _thaw(self, sandbox_id: str, watched: _Watched) -> None:
        async with watched.lock:
            if watched.is_frozen:
                with contextlib.suppress(NotFound):  # it has ended; whoever wanted it finds out
                    await self._machines.thaw(sandbox_id)
                watched.is_frozen = False

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Freeze idle machines for as long as the server runs."""
        while self._patience_s > 0:
            await sleep(LOOK_S)
            try:
                await self.look(sleep)
            except Exception:  # a host that is broken for a moment: the next look catches up
                log.exception("could not look for idle machines to freeze; it is tried again")
        await asyncio.Event().wait()

    async def look(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """One look at all machines."""
        due = [(sandbox_id, each) for sandbox_id, each in self._watched.items() if self._is_due(each)]
        await asyncio.gather(*(self._look_at(sandbox_id, each, sleep) for sandbox_id, each in due))

    def _is_due(self, watched: _Watched) -> bool:
        return _can_freeze(watched) and self._now() - watched.used_at >= watched.patience_s

    async def _look_at(self, sandbox_id: str, watched: _Watched, sleep: Callable[[float], Awaitable[None]]) -> None:
        try:
            used_at = watched.used_at
            async with self._asking:
                is_idle = await self._machines.is_idle(sandbox_id)
            if not is_idle:
                # Something runs. It may end by itself at any time, so it is asked again, but ever more rarely.
                watched.patience_s = min(watched.patience_s * 2, self._now() - used_at + LONGEST_S)
                return
            await sleep(SETTLE_S)
            async with watched.lock:
                if _can_freeze(watched) and watched.used_at == used_at:
                    await self._freeze(sandbox_id, watched)
        except EngineError as error:
            watched.used_at = self._now()
            log.debug("sandbox %s is not frozen: %s", sandbox_id, error)

    async def _freeze(self, sandbox_id: str, watched: _Watched) -> None:
        watched.is_frozen = True  # from here on every use waits for the lock, and thaws
        try:
            await asyncio.wait_for(self._machines.freeze(sandbox_id), FREEZE_LIMIT_S)
        except (EngineError, TimeoutError) as error:
            log.warning("could not freeze the idle sandbox %s: %s", sandbox_id, error)
            with contextlib.suppress(NotFound):
                await self._machines.thaw(sandbox_id)
            watched.is_frozen, watched.used_at, watched.patience_s = False, self._now(), LONGEST_S


def _can_freeze(watched: _Watched) -> bool:
    return not watched.is_frozen and watched.uses == 0
