"""The queue of builds: runs a few at a time, each to its end, and records how it ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from sandlot.engine.builds.build_log import BuildLog
from sandlot.engine.builds.build_run import BASE, FINALIZE, BaseMissing, BuildFailed, BuildRun, in_step
from sandlot.engine.builds.build_settings import BuildLimits
from sandlot.engine.builds.build_slots import FairSlots
from sandlot.engine.builds.build_states import BuildStates, failed
from sandlot.engine.builds.template_catalog import TemplateCatalog
from sandlot.engine.core.errors import NotFound
from sandlot.engine.core.model import BuildStatus, Content
from sandlot.engine.core.ports import Clock

log = logging.getLogger(__name__)

MakeTemplate = Callable[[str, Callable[[str], None]], Awaitable[bool]]
UseLayers = Callable[[Sequence[str]], Awaitable[None]]

FLUSH_S = 1.0
INTERRUPTED = "the server stopped while this was being built; nothing of the build was kept but its finished steps: build it again"
FAULT = "the build failed because of a fault of the server; its log has more"


class BuildQueue:
    def __init__(self, *, states: BuildStates, catalog: TemplateCatalog, clock: Clock, limits: BuildLimits) -> None:
        self._states, self._catalog, self._clock, self._limits = states, catalog, clock, limits
        self._slots = FairSlots(limits.at_once)
        self._logs: dict[str, BuildLog] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.use_layers: UseLayers | None = None
        self.make_template: MakeTemplate | None = None

    def start(self, run: BuildRun) -> asyncio.Task[None]:
        self._logs[run.build.id] = run.build_log
        task = asyncio.create_task(self._to_the_end(run), name=f"build {run.build.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def flush(self, build_id: str) -> None:
        """Have what a running build logged so far in the store."""
        build_log = self._logs.get(build_id)
        if build_log is not None:
            await build_log.flush()

    async def close(self) -> None:
        """Give up the builds that run; each is marked so."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _to_the_end(self, run: BuildRun) -> None:
        flushing = asyncio.create_task(run.build_log.flush_regularly(FLUSH_S))
        try:
            if self._slots.locked():
                run.build_log.add(
                    f"waiting: {self._limits.at_once} builds are running, which is all this server runs at once"
                )
            await self._finish(run, await self._content(run))
        except BuildFailed as failure:
            await self._fail(run, failure.step, str(failure))
        except TimeoutError:
            await self._fail(run, FINALIZE, f"the build took longer than {self._limits.build_s:g} s")
        except asyncio.CancelledError:
            await self._fail(run, None, INTERRUPTED)
            raise
        except Exception:
            log.exception("build %s of template %s failed", run.build.id, run.template.name)
            await self._fail(run, None, FAULT)
        finally:
            flushing.cancel()
            del self._logs[run.build.id]
            await run.build_log.flush()

    async def _content(self, run: BuildRun) -> Content:
        """Run the build. A base that is made first needs a slot of its own: none is held meanwhile."""
        try:
            return await self._in_slot(run)
        except BaseMissing as missing:
            make, output = self.make_template, run.build_log.output(BASE)
            if make is None or not await in_step(BASE, make(missing.ref, lambda line: output(line, "info"))):
                raise BuildFailed(BASE, str(missing)) from missing
        try:
            return await self._in_slot(run)
        except BaseMissing as missing:
            raise BuildFailed(BASE, str(missing)) from missing

    async def _in_slot(self, run: BuildRun) -> Content:
        async with self._slots.of(run.build.team_id), asyncio.timeout(self._limits.build_s):
            return await run.execute()

    async def _finish(self, run: BuildRun, content: Content) -> None:
        now = self._clock()
        done = replace(run.build, content=content, updated_at=now, finished_at=now)
        # Tags before the status: who sees "ready" can create a sandbox.
        await self._catalog.add_build(run.template, await self._states.swap(run.build, done))
        await run.build_log.flush()
        if self.use_layers is not None:
            await self.use_layers(content.layers)
        # Another build may have taken the tags by now, and this one may be emptied: only the status is ours to change.
        await self._states.change(run.build.id, lambda build: replace(build, status=BuildStatus.READY))

    async def _fail(self, run: BuildRun, step: str | None, message: str) -> None:
        run.build_log.add(message, "error", step or "")
        await run.build_log.flush()
        now = self._clock()
        with suppress(NotFound):  # the template was deleted meanwhile
            await self._states.change(run.build.id, lambda build: failed(build, message, step, now))
