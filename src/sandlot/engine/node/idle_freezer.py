"""IdleFreezer: which machines are held still because nobody uses them, and letting them go on before anybody notices.

A machine in which nothing of the user's runs still costs the host: a gVisor kernel looks around some hundred times a second.
Such a machine is frozen when nothing has gone in or out for a while, and thawed before the next thing goes in. What keeps
this invisible is one rule: a use is counted before anything else happens, and only a machine without uses is frozen, under
a lock that every later use of it waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from sandlot.engine.core.errors import EngineError, NotFound
from sandlot.engine.core.model import Sandbox, State

log = logging.getLogger(__name__)

LOOK_S = 1.0
LONGEST_S = 60.0  # how often a machine in which something runs is asked at least
SETTLE_S = 0.1  # between the question and the freezing: what the guest needs to see that our connection is closed
FREEZE_LIMIT_S = 2.0
ASK_AT_ONCE = 4

Act = Callable[[str], Awaitable[None]]


@dataclass(slots=True)
class _Seen:
    """What is known of one machine."""

    used_at: float
    patience_s: float
    uses: int = 0
    is_still: bool = False  # frozen, or about to be
    may_rest: bool = True
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class IdleFreezer:
    """Machines of running sandboxes, and who uses them. `is_idle` asks a machine whether anything of the user's runs in it."""

    def __init__(
        self,
        *,
        is_idle: Callable[[str], Awaitable[bool]],
        freeze: Act,
        thaw: Act,
        patience_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_idle, self._freeze, self._thaw = is_idle, freeze, thaw
        self._patience_s, self._now = patience_s, now
        self._seen: dict[str, _Seen] = {}
        self._asking = asyncio.Semaphore(ASK_AT_ONCE)

    def changed(self, sandbox: Sandbox) -> None:
        """For lifecycle's `on_change`: only machines of running sandboxes rest; one that is being moved is kept in mind."""
        if sandbox.state is State.RUNNING:
            if sandbox.id not in self._seen:
                self._seen[sandbox.id] = _Seen(used_at=self._now(), patience_s=self._patience_s)
            self._seen[sandbox.id].may_rest = True
        elif sandbox.state in (State.PAUSED, State.ENDED):
            self._seen.pop(sandbox.id, None)
        elif seen := self._seen.get(sandbox.id):
            seen.may_rest = False

    def count(self) -> int:
        """How many machines are held still."""
        return sum(seen.is_still for seen in self._seen.values())

    def rests_since(self, sandbox_id: str) -> float | None:
        """When a machine that is held still was last used; None: it runs, or may."""
        seen = self._seen.get(sandbox_id)
        return seen.used_at if seen is not None and seen.is_still else None

    @contextlib.asynccontextmanager
    async def awake(self, sandbox_id: str) -> AsyncIterator[None]:
        """While inside, the machine runs. One that is not known here was never held still from here."""
        seen = self._seen.get(sandbox_id)
        if seen is None:
            yield
            return
        seen.uses += 1
        try:
            if seen.is_still:
                await self._wake(sandbox_id, seen)
            yield
        finally:
            seen.uses -= 1
            seen.used_at, seen.patience_s = self._now(), self._patience_s

    async def _wake(self, sandbox_id: str, seen: _Seen) -> None:
        async with seen.lock:
            if seen.is_still:
                with contextlib.suppress(NotFound):  # it has ended; whoever wanted it finds out
                    await self._thaw(sandbox_id)
                seen.is_still = False

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Look for machines to hold still for as long as the server runs."""
        while self._patience_s > 0:
            await sleep(LOOK_S)
            try:
                await self.look(sleep)
            except Exception:  # a host that is broken for a moment: the next look catches up
                log.exception("could not look for machines to hold still; it is tried again")
        await asyncio.Event().wait()

    async def look(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """One look at all machines."""
        due = [(sandbox_id, seen) for sandbox_id, seen in self._seen.items() if self._is_due(seen)]
        await asyncio.gather(*(self._rest(sandbox_id, seen, sleep) for sandbox_id, seen in due))

    def _is_due(self, seen: _Seen) -> bool:
        return self._may(seen) and self._now() - seen.used_at >= seen.patience_s

    def _may(self, seen: _Seen) -> bool:
        return seen.may_rest and not seen.is_still and seen.uses == 0

    async def _rest(self, sandbox_id: str, seen: _Seen, sleep: Callable[[float], Awaitable[None]]) -> None:
        try:
            used_at = seen.used_at
            async with self._asking:
                is_idle = await self._is_idle(sandbox_id)
            if not is_idle:
                # Something runs. It may end by itself at any time, so it is asked again, but ever more rarely.
                seen.patience_s = min(seen.patience_s * 2, self._now() - used_at + LONGEST_S)
                return
            await sleep(SETTLE_S)
            async with seen.lock:
                if self._may(seen) and seen.used_at == used_at:
                    await self._hold(sandbox_id, seen)
        except EngineError as error:
            seen.used_at = self._now()
            log.debug("sandbox %s is not held still: %s", sandbox_id, error)

    async def _hold(self, sandbox_id: str, seen: _Seen) -> None:
        seen.is_still = True  # from here on every use waits for the lock, and thaws
        try:
            await asyncio.wait_for(self._freeze(sandbox_id), FREEZE_LIMIT_S)
        except (EngineError, TimeoutError) as error:
            log.warning("could not hold the idle sandbox %s still: %s", sandbox_id, error)
            with contextlib.suppress(NotFound):
                await self._thaw(sandbox_id)
            seen.is_still, seen.used_at, seen.patience_s = False, self._now(), LONGEST_S
