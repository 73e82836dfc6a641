"""Deadlines: the loop that ends or pauses sandboxes at their timeout, and forgets those that ended long ago."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta

from sandlot.engine.control.end import Ending
from sandlot.engine.control.inflight import InFlight
from sandlot.engine.control.sandbox_states import SandboxStates
from sandlot.engine.control.suspend import Suspension
from sandlot.engine.core.errors import Conflict, EngineError, NotFound
from sandlot.engine.core.model import OnTimeout, Sandbox, State
from sandlot.engine.core.ports import Clock, SandboxStore

log = logging.getLogger(__name__)

INTERVAL_S = 1.0
PURGE_INTERVAL = timedelta(minutes=10)
EXPIRE_WAIT_S = 2.0
RETRY = timedelta(seconds=60)  # when a pause at a deadline fails, the sandbox goes on and is tried again


class Deadlines:
    """Deadlines are rows; the soonest one written from here is remembered, so that the loop wakes up in time."""

    def __init__(
        self,
        *,
        sandboxes: SandboxStore,
        states: SandboxStates,
        inflight: InFlight,
        ending: Ending,
        suspension: Suspension,
        clock: Clock,
    ) -> None:
        self._sandboxes, self._states, self._inflight = sandboxes, states, inflight
        self._ending, self._suspension, self._clock = ending, suspension, clock
        self._known: dict[str, datetime] = {}

    def changed(self, sandbox: Sandbox) -> None:
        """For `SandboxStates.on_change`."""
        if sandbox.state is State.RUNNING:
            self._known[sandbox.id] = sandbox.end_at
        else:
            self._known.pop(sandbox.id, None)

    def next(self) -> datetime | None:
        """The soonest deadline written from here; rows of an earlier process are found by the loop's own look."""
        return min(self._known.values(), default=None)

    async def run(
        self,
        *,
        keep_ended: timedelta = timedelta(hours=24),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Act on deadlines and forget old rows, for as long as the server runs."""
        next_purge = self._clock()
        while True:
            try:
                await self.expire()
                if self._clock() >= next_purge:
                    next_purge = self._clock() + PURGE_INTERVAL
                    await self.purge(keep_ended)
            except Exception:  # for example a database that is away for a moment: the next pass catches up
                log.exception("could not look for sandboxes past their deadline; it is tried again")
            await sleep(_until(self.next(), self._clock()))

    async def expire(self) -> int:
        """One pass: act on what is past its deadline; return how many that was."""
        due = await self._sandboxes.expired(self._clock())
        for sandbox in due:
            self._known.pop(sandbox.id, None)
        acts = [self._inflight.later(self.reached(sandbox)) for sandbox in due]
        if acts:  # a stop that hangs goes on by itself: it must not hold up the deadlines of others
            await asyncio.wait(acts, timeout=EXPIRE_WAIT_S)
        return len(due)

    async def reached(self, due: Sandbox) -> None:
        """End or pause it, as it was created to. A pause that fails must not lose the sandbox."""
        if due.on_timeout is not OnTimeout.PAUSE:
            await self._ending.end(due, "timeout")
            return
        if due.id in self._inflight.moving:
            return
        try:
            await self._suspension.pause(None, due.id, memory=due.pause_memory)
        except (Conflict, NotFound):  # somebody else was quicker; if it runs on, it is due again
            return
        except EngineError as error:
            log.error("could not pause sandbox %s at its deadline, it goes on for a minute: %s", due.id, error)
            later = self._clock() + RETRY
            await self._states.change(due.id, lambda old: _put_off(old, later))

    async def purge(self, keep: timedelta) -> int:
        """Forget sandboxes that ended longer ago than `keep`."""
        return await self._sandboxes.purge(self._clock() - keep)


def _put_off(old: Sandbox, until: datetime) -> Sandbox:
    return replace(old, end_at=max(old.end_at, until)) if old.state is State.RUNNING else old


def _until(deadline: datetime | None, now: datetime) -> float:
    if deadline is None:
        return INTERVAL_S
    return min(max((deadline - now).total_seconds(), 0.02), INTERVAL_S)
