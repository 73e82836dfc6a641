"""What sandboxes used, over time: looks at every running one, and keeps what it saw in the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sandlot.engine.control.lookup import SandboxLookup
from sandlot.engine.control.nodes import Nodes
from sandlot.engine.core.errors import EngineError
from sandlot.engine.core.model import Sandbox, State, Usage
from sandlot.engine.core.ports import Clock, HistoryStore

log = logging.getLogger(__name__)

INTERVAL_S = 5.0
TIDY_S = 60.0
FRESH = timedelta(seconds=1)
AT_ONCE = 8
SAMPLE_LIMIT_S = 5.0
MOST_POINTS = 2000
LATEST = timedelta(days=365 * 200)  # clocks count no further


class UsageHistory:
    def __init__(self, nodes: Nodes, lookup: SandboxLookup, store: HistoryStore) -> None:
        self._nodes, self._lookup, self.store = nodes, lookup, store
        self._last: dict[str, Usage] = {}  # of running sandboxes
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def samples(
        self, sandbox: Sandbox, now: datetime, start_s: int | None = None, end_s: int | None = None
    ) -> Sequence[Usage]:
        """Samples between two Unix times, oldest first, with one of this moment if the last is older than a second."""
        last = self._last.get(sandbox.id)
        if last is None or now - last.at > FRESH:
            found = await self._look(sandbox)
            if found is not None:
                await self._keep([(sandbox.id, found)])
        since, until = _moment(start_s), _moment(end_s)
        return thinned(await self.store.samples(sandbox.id, since, until and until + timedelta(milliseconds=999)))

    async def latest(self, sandbox: Sandbox, now: datetime) -> Usage | None:
        """Of a running sandbox."""
        last = self._last.get(sandbox.id)
        if last is not None and now - last.at <= FRESH and sandbox.state is State.RUNNING:
            return last
        found = await self._look(sandbox)
        if found is not None:
            await self._keep([(sandbox.id, found)])
        return found

    async def sample_all(self) -> None:
        """Look once at every running sandbox."""
        sandboxes = await self._lookup.running()
        found = zip(sandboxes, await asyncio.gather(*map(self._look, sandboxes)), strict=True)
        await self._keep([(sandbox.id, usage) for sandbox, usage in found if usage is not None])
        for gone in self._last.keys() - {sandbox.id for sandbox in sandboxes}:
            del self._last[gone]

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Sample for as long as the server runs."""
        while True:
            try:
                await self.sample_all()
            except EngineError as error:
                log.error("could not list sandboxes to sample their usage: %s", error)
            await sleep(INTERVAL_S)

    async def tidy(self, clock: Clock, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Make old samples coarser, for as long as the server runs."""
        while True:
            try:
                await self.store.roll_up(clock())
            except EngineError as error:
                log.error("could not roll up what sandboxes used; it is tried again: %s", error)
            await sleep(TIDY_S)

    async def _look(self, sandbox: Sandbox) -> Usage | None:
        """A sandbox that cannot be looked at (just gone, or on a busy host) has a gap, not an error."""
        if sandbox.state is not State.RUNNING:
            return None
        async with self._slots:
            try:
                return await asyncio.wait_for(self._nodes.of(sandbox).machines.usage(sandbox.id), SAMPLE_LIMIT_S)
            except (EngineError, TimeoutError) as error:
                log.debug("no usage of sandbox %s: %s", sandbox.id, error)
                return None

    async def _keep(self, samples: Sequence[tuple[str, Usage]]) -> None:
        self._last.update(samples)
        try:
            await self.store.add(samples)
        except EngineError as error:
            log.error("could not keep what %d sandboxes use: %s", len(samples), error)


def thinned(samples: Sequence[Usage], most: int = MOST_POINTS) -> Sequence[Usage]:
    """At most so many: neighbours become one, with the average of their CPU and the highest of the rest."""
    size = -(-len(samples) // most)
    if size <= 1:
        return samples
    return [_merged(samples[start : start + size]) for start in range(0, len(samples), size)]


def _merged(samples: Sequence[Usage]) -> Usage:
    return replace(
        samples[-1],
        cpu_used_pct=round(sum(one.cpu_used_pct for one in samples) / len(samples), 2),
        mem_used=max(one.mem_used for one in samples),
        disk_used=max(one.disk_used for one in samples),
    )


def _moment(unix_s: int | None) -> datetime | None:
    if unix_s is None:
        return None
    return datetime.fromtimestamp(0, UTC) + min(timedelta(seconds=min(unix_s, 10**10)), LATEST)
