"""Builds stock templates when they are first asked for, the way an operator would: with the command line, in the background."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from sandlot.cli import recipes
from sandlot.engine import processes
from sandlot.settings import Settings

log = logging.getLogger(__name__)

BUILD_TIMEOUT_S = 3600


class FirstUse:
    """Call it with the name of a template that is not there; it says what is being done about it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._builds: dict[str, asyncio.Task[None]] = {}

    async def __call__(self, ref: str) -> str | None:
        """What to tell the caller, or None if it is no stock template."""
        name = ref.partition(":")[0]
        if name not in recipes.stock_names():
            return None
        failed = ""
        earlier = self._builds.get(name)
        if earlier is not None and earlier.done() and not earlier.cancelled() and earlier.exception() is not None:
            failed = f" (the last attempt failed: {str(earlier.exception())[-300:]})"
        if earlier is None or earlier.done():
            self._builds[name] = asyncio.create_task(self._build(name), name=f"stock template {name}")
        return (
            f"the stock template {name!r} is being built for its first use{failed}; try again in a few minutes, or watch it: "
            f"./sandlot template build --stock {name}"
        )

    async def _build(self, name: str) -> None:
        log.info("building the stock template %s for its first use", name)
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
