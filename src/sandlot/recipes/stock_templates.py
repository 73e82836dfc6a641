"""Builds stock templates in the background of a server: on first use, and again when a recipe has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from sandlot.program import SANDLOT
from sandlot.recipes import stock
from sandlot.recipes.build import build_stock
from sandlot.recipes.connection import Connection
from sandlot.recipes.recipe import RecipeFailed
from sandlot.recipes.stock import StockNotes

log = logging.getLogger(__name__)

BuildStock = Callable[[Connection, str, StockNotes], Awaitable[object]]

BUILD_TIMEOUT_S = 3600
REASON_LENGTH = 300


class StockTemplates:
    """At most one build of each template runs at a time, however many ask for it.

    `connection` is awaited when a build begins: the server's own address is known only once it listens.
    """

    def __init__(
        self, *, connection: Callable[[], Awaitable[Connection]], notes: StockNotes, build: BuildStock = build_stock
    ) -> None:
        self._connection, self._notes, self._build_stock = connection, notes, build
        self._builds: dict[str, asyncio.Task[None]] = {}
        self._closed = False

    async def announce(self, ref: str) -> str | None:
        """Begin to build it; what to answer the caller, or None if it is no stock template."""
        name = self._known(ref)
        if name is None:
            return None
        failed = _failure(self._builds.get(name))
        self._begin(name)
        last = f" (the last attempt failed: {failed[-REASON_LENGTH:]})" if failed else ""
        return (
            f"the stock template {name!r} is being built for its first use{last}; try again in a few minutes, or watch it: "
            f"{SANDLOT} template build --stock {name}"
        )

    async def make(self, ref: str, output: Callable[[str], None]) -> bool:
        """Build it and wait until it is ready. False: it is no stock template. Raises `RecipeFailed`."""
        name = self._known(ref)
        if name is None:
            return False
        output(f"the stock template {name!r} is being built for its first use; this build goes on when it is ready")
        await self._wait_for(name, self._begin(name))
        output(f"the stock template {name!r} is ready")
        return True

    def renew(self) -> list[str]:
        """Build those again whose recipe has changed since they were built here, after an upgrade; which."""
        changed = [name for name in stock.names() if self._notes.get(name) not in (None, stock.digest(name))]
        for name in changed:
            log.info("the recipe of the stock template %s has changed; it is built again", name)
            self._begin(name)
        return changed

    async def close(self) -> None:
        """Cancel the builds that run; none begins any more."""
        self._closed = True
        tasks = [task for task in self._builds.values() if not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _known(self, ref: str) -> str | None:
        name = ref.partition(":")[0]
        return name if name in stock.names() and not self._closed else None

    def _begin(self, name: str) -> asyncio.Task[None]:
        task = self._builds.get(name)
        if task is None or task.done():
            task = self._builds[name] = asyncio.create_task(self._build(name), name=f"stock template {name}")
            task.add_done_callback(_failure)  # logged already; nobody may be waiting for it
        return task

    async def _build(self, name: str) -> None:
        log.info("building the stock template %s", name)
        try:
            for needed in stock.needed(name):  # upon the new one, not upon the one it replaces
                if needed in self._builds and not self._builds[needed].done():
                    await self._wait_for(needed, self._builds[needed])
            async with asyncio.timeout(BUILD_TIMEOUT_S):
                await self._build_stock(await self._connection(), name, self._notes)
        except TimeoutError as error:
            log.error("the stock template %s was not built within %d s", name, BUILD_TIMEOUT_S)
            raise RecipeFailed(f"the build took longer than {BUILD_TIMEOUT_S} s") from error
        except RecipeFailed as error:
            log.error("the stock template %s could not be built: %s", name, error)
            raise
        except Exception:
            log.exception("the stock template %s could not be built", name)
            raise
        log.info("the stock template %s is ready", name)

    async def _wait_for(self, name: str, task: asyncio.Task[None]) -> None:
        try:
            await asyncio.shield(task)
        except RecipeFailed as error:
            raise RecipeFailed(
                f"the stock template {name!r}, which this is built upon, could not be built: {str(error)[-REASON_LENGTH:]}"
            ) from error


def _failure(task: asyncio.Task[None] | None) -> str | None:
    """Why a build failed; None if it did not, or has not ended."""
    if task is None or not task.done() or task.cancelled() or task.exception() is None:
        return None
    return str(task.exception())
