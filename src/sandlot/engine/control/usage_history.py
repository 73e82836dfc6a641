"""What running sandboxes used over the last hours: a bounded ring of samples for each, kept in memory."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

from sandlot.engine.control.lookup import SandboxLookup
from sandlot.engine.control.nodes import Nodes
from sandlot.engine.core.errors import EngineError
from sandlot.engine.core.model import Sandbox, State, Usage

log = logging.getLogger(__name__)

INTERVAL_S = 5.0
MOST_SAMPLES = 1440  # two hours
FRESH = timedelta(seconds=1)
AT_ONCE = 8
SAMPLE_LIMIT_S = 5.0


class UsageHistory:
    def __init__(self, nodes: Nodes, lookup: SandboxLookup) -> None:
        self._nodes, self._lookup = nodes, lookup
        self._samples: dict[str, deque[Usage]] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    def changed(self, sandbox: Sandbox) -> None:
        """For `SandboxStates.on_change`: an ended sandbox has no metrics."""
        if sandbox.state in (State.STOPPING, State.ENDED):
            self._samples.pop(sandbox.id, None)

    async def samples(
        self, sandbox: Sandbox, now: datetime, start_s: int | None = None, end_s: int | None = None
    ) -> Sequence[Usage]:
        """Samples between two Unix times, oldest first, with one of this moment if the last is older than a second."""
        kept = self._samples.get(sandbox.id)
        if not kept or now - kept[-1].at > FRESH:
            await self._sample(sandbox)
        return [
            usage
            for usage in self._samples.get(sandbox.id, ())
            if (start_s is None or usage.at.timestamp() >= start_s)
            and (end_s is None or int(usage.at.timestamp()) <= end_s)
        ]

    async def latest(self, sandbox: Sandbox, now: datetime) -> Usage | None:
        found = await self.samples(sandbox, now)
        return found[-1] if found else None

    async def sample_all(self) -> None:
        """Look once at every running sandbox, and forget those that are not running any more."""
        sandboxes = await self._lookup.running()
        await asyncio.gather(*map(self._sample, sandboxes))
        for gone in self._samples.keys() - {sandbox.id for sandbox in sandboxes}:
            del self._samples[gone]

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Sample for as long as the server runs."""
        while True:
            try:
                await self.sample_all()
            except EngineError as error:
                log.error("could not list sandboxes to sample their usage: %s", error)
            await sleep(INTERVAL_S)

    async def _sample(self, sandbox: Sandbox) -> None:
        """A sandbox that cannot be looked at (just gone, or on a busy host) has a gap, not an error."""
        if sandbox.state is not State.RUNNING:
            return
        async with self._slots:
            try:
                usage = await asyncio.wait_for(self._nodes.of(sandbox).machines.usage(sandbox.id), SAMPLE_LIMIT_S)
            except (EngineError, TimeoutError) as error:
                log.debug("no usage of sandbox %s: %s", sandbox.id, error)
                return
        self._samples.setdefault(sandbox.id, deque(maxlen=MOST_SAMPLES)).append(usage)
