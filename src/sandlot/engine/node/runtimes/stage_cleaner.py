"""Removes machines' mounts from the server's own view, beside other work: the kernel takes its time for it."""

from __future__ import annotations

import asyncio
import logging

from sandlot.engine.node.runtimes.rootfs import Stage

log = logging.getLogger(__name__)


class StageCleaner:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._clearing: dict[str, asyncio.Task[None]] = {}

    def begin(self, machine_id: str) -> None:
        before = self._clearing.get(machine_id)

        async def clear() -> None:
            if before is not None:
                await asyncio.wait({before})
            await asyncio.to_thread(self._stage.clear, machine_id)

        task = self._clearing[machine_id] = asyncio.create_task(clear())
        task.add_done_callback(lambda done: self._done(machine_id, done))

    def _done(self, machine_id: str, done: asyncio.Task[None]) -> None:
        if self._clearing.get(machine_id) is done:
            del self._clearing[machine_id]
        if not done.cancelled() and (error := done.exception()) is not None:
            log.warning("mounts of sandbox %s are still in the server's view: %s", machine_id, error)

    async def finish(self, machine_id: str) -> None:
        task = self._clearing.get(machine_id)
        if task is not None:
            await asyncio.wait({task})
            await task

    async def close(self) -> None:
        if self._clearing:
            await asyncio.wait(self._clearing.values())
        self._stage.close()
