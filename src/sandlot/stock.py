"""Builds stock templates when they are first asked for, the way an operator would: with the command line, in the background."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable

from sandlot.cli import recipes
from sandlot.engine.core.errors import StepFailed
from sandlot.engine.node import processes
from sandlot.settings import Settings

log = logging.getLogger(__name__)

BUILD_TIMEOUT_S = 3600


class StockTemplates:
    """Knows which templates that are not there can be made. Each is made once, however many ask for it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._builds: dict[str, asyncio.Task[None]] = {}

    async def announce(self, ref: str) -> str | None:
        """Begin to build it; what to tell the caller, or None if it is no stock template."""
        name = ref.partition(":")[0]
        if name not in recipes.stock_names():
            return None
        earlier = self._builds.get(name)
        failed = ""
        if earlier is not None and earlier.done() and not earlier.cancelled() and earlier.exception() is not None:
            failed = f" (the last attempt failed: {_said(earlier.exception())})"
        self._begin(name)
        return (
            f"the stock template {name!r} is being built for its first use{failed}; try again in a few minutes, or watch it: "
            f"./sandlot template build --stock {name}"
        )

    async def make(self, ref: str, tell: Callable[[str], None]) -> bool:
        """Build it and wait until it is there. False: it is no stock template. Raises `StepFailed`."""
        name = ref.partition(":")[0]
        if name not in recipes.stock_names():
            return False
        tell(f"the stock template {name!r} is being built for its first use; this build goes on when it is ready")
        try:
            await asyncio.shield(self._begin(name))
        except processes.CommandFailed as error:
            raise StepFailed(
                f"the stock template {name!r}, which this is built upon, could not be built: {_said(error)}"
            ) from error
        tell(f"the stock template {name!r} is ready")
        return True

    def renew(self) -> list[str]:
        """Build those again whose recipe is another one than when they were built here, after an upgrade; which."""
        changed = []
        for name in recipes.stock_names():
            note = recipes.stock_note(self._settings.data_dir, name)
            if note.exists() and note.read_text() != recipes.stock_digest(name):
                log.info("the recipe of the stock template %s has changed; it is built again", name)
                self._begin(name)
                changed.append(name)
        return changed

    def _begin(self, name: str) -> asyncio.Task[None]:
        task = self._builds.get(name)
        if task is None or task.done():
            task = self._builds[name] = asyncio.create_task(self._build(name), name=f"stock template {name}")
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # the log has it already
        return task

    async def _build(self, name: str) -> None:
        log.info("building the stock template %s", name)
        environment = {**os.environ, "SANDLOT_DATA_DIR": str(self._settings.data_dir)}
        command = (sys.executable, "-m", "sandlot", "template", "build", "--stock", "--quiet", name)
        try:
            await processes.run(*command, env=environment, timeout_s=BUILD_TIMEOUT_S)
        except processes.CommandFailed as error:
            log.error("the stock template %s could not be built: %s", name, error.output.strip()[-2000:])
            raise
        log.info("the stock template %s is ready", name)

    async def close(self) -> None:
        tasks = [task for task in self._builds.values() if not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _said(error: BaseException | None) -> str:
    text = error.output if isinstance(error, processes.CommandFailed) else str(error)
    return text.strip()[-300:]
