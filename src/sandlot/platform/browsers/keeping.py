"""The loop over browsers: ends those whose time is over or that nobody uses, compares rows with sandboxes, forgets old ones."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import time
from collections.abc import Coroutine, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from sandlot.platform.browsers.attachments import Attachments
from sandlot.platform.browsers.boxes import BrowserBoxes
from sandlot.platform.browsers.service import PREFIX, Browsers
from sandlot.platform.browsers.state import BrowserState
from sandlot.platform.core.browsers import LIVE_BROWSERS, Browser, BrowserStatus
from sandlot.platform.core.errors import PlatformError
from sandlot.platform.core.model import ProviderSandbox

log = logging.getLogger(__name__)
TICK_S = 1.0
COMPARE_S = 30.0
QUIET_S = 600.0  # between looks while there is no browser
ALONE_S = 300.0
MOST_AT_ONCE = 8


class BrowserKeeper:
    def __init__(
        self, *, state: BrowserState, browsers: Browsers, boxes: BrowserBoxes, attachments: Attachments
    ) -> None:
        self._state, self._browsers, self._boxes, self._attachments = state, browsers, boxes, attachments
        self._ends: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)

    async def run(self) -> None:
        """Until cancelled."""
        await self._guarded(self.at_start())
        compared = -COMPARE_S
        try:
            while True:
                if time.monotonic() - compared >= COMPARE_S:
                    await self._guarded(self.compare())
                    await self._guarded(self.forget())
                    compared = time.monotonic()
                await asyncio.sleep(TICK_S)
                await self._attachments.some(QUIET_S)
                await self._guarded(self.sweep())
        finally:
            for task in self._ends:
                task.cancel()
            await asyncio.gather(*self._ends, return_exceptions=True)

    async def close(self) -> None:
        """Browsers go on."""
        await self._attachments.close()
        await self._browsers.settle()

    async def at_start(self) -> None:
        """What an earlier run left: running browsers can be connected to again, the rest ends."""
        for browser in await self._state.store.query(statuses=LIVE_BROWSERS):
            if browser.status is BrowserStatus.RUNNING:
                with contextlib.suppress(PlatformError):
                    await self._attachments.opened(browser, None)
            elif browser.status is BrowserStatus.STARTING:
                self._end(browser, BrowserStatus.FAILED, "the platform stopped while it started")
            else:
                self._end(browser, browser.outcome or BrowserStatus.COMPLETED, browser.problem)

    async def sweep(self) -> None:
        now = self._state.clock()
        for browser in await self._state.store.query(statuses={BrowserStatus.RUNNING}):
            if browser.expires_at <= now:
                self._end(browser, BrowserStatus.TIMED_OUT, "its time was over")
        for id in self._attachments.idle(False, ALONE_S):
            if (found := await self._state.store.get(id)) is not None:
                self._end(found, BrowserStatus.COMPLETED, f"nobody was connected for {ALONE_S:.0f} seconds")

    async def compare(self) -> None:
        """Sandboxes that no live browser owns are removed; browsers without a sandbox end."""
        found = await self._boxes.found()
        rows = await self._state.store.query(
            statuses=LIVE_BROWSERS
        )  # after the list: what is in it had its row already
        strays, missing = drift(rows, found)
        for provider, sandbox in strays:
            log.warning("sandbox %s at provider %s belongs to no browser; removed", sandbox.id, provider)
            await self._boxes.end(provider, sandbox.id)
        for browser in missing:
            self._end(browser, BrowserStatus.FAILED, f"provider {browser.provider!r} has its sandbox no more")

    async def forget(self) -> None:
        before = self._state.clock() - timedelta(seconds=self._browsers.limits.keep_ended_s)
        for id in await self._state.store.purge(before):
            await asyncio.to_thread(_remove, self._attachments.place(id))

    def _end(self, browser: Browser, outcome: BrowserStatus, why: str | None) -> None:
        task = asyncio.create_task(self._end_one(browser.id, outcome, why))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _end_one(self, id: str, outcome: BrowserStatus, why: str | None) -> None:
        async with self._slots:
            try:
                await self._browsers.end(id, outcome, why)
            except PlatformError as error:
                log.warning("browser %s could not be ended; it is tried again: %s", id, error)

    async def _guarded(self, step: Coroutine[Any, Any, None]) -> None:
        try:
            await step
        except PlatformError as error:
            log.error("could not look after browsers: %s", error)


def drift(
    rows: Sequence[Browser], found: Mapping[str, Sequence[ProviderSandbox]]
) -> tuple[list[tuple[str, ProviderSandbox]], list[Browser]]:
    """Sandboxes without a browser, and browsers that run without a sandbox."""
    live = {row.id: row for row in rows}
    strays = [
        (provider, sandbox)
        for provider, sandboxes in found.items()
        for sandbox in sandboxes
        if sandbox.session.startswith(PREFIX) and not _owns(live.get(sandbox.session), sandbox)
    ]
    there = {sandbox.id for sandboxes in found.values() for sandbox in sandboxes}
    missing = [
        row
        for row in rows
        if row.status is BrowserStatus.RUNNING and row.provider in found and row.provider_sandbox_id not in there
    ]
    return strays, missing


def _owns(browser: Browser | None, sandbox: ProviderSandbox) -> bool:
    return browser is not None and browser.provider_sandbox_id in (None, sandbox.id)


def _remove(place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
