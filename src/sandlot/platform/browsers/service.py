"""Browsers for callers: create, find, end. Each has a sandbox to itself, and ends by its user, its time, or by being left alone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Collection, Sequence
from datetime import timedelta

from sandlot.platform.browsers.attachments import Attachments
from sandlot.platform.browsers.boxes import BrowserBoxes
from sandlot.platform.browsers.files import BrowserFiles
from sandlot.platform.browsers.launching import Launching
from sandlot.platform.browsers.profiles import Contexts
from sandlot.platform.browsers.state import BrowserState
from sandlot.platform.core.browsers import LIVE_BROWSERS, Browser, BrowserLimits, BrowserRequest, BrowserStatus
from sandlot.platform.core.errors import Busy, Conflict, InvalidRequest, NotFound, PlatformError

log = logging.getLogger(__name__)
LEAST_S, MOST_S = 60, 21600
PREFIX = "brw_"  # of their ids, by which sandboxes of browsers are known, too


class Browsers:
    def __init__(
        self,
        *,
        state: BrowserState,
        boxes: BrowserBoxes,
        launching: Launching,
        attachments: Attachments,
        contexts: Contexts,
        files: BrowserFiles,
        limits: BrowserLimits,
    ) -> None:
        self._state, self._boxes, self._launching = state, boxes, launching
        self._attachments, self._contexts, self._files, self._limits = attachments, contexts, files, limits
        self._admitting = asyncio.Lock()
        self._ending: dict[str, asyncio.Task[Browser]] = {}
        attachments.on_left = self._left

    @property
    def limits(self) -> BrowserLimits:
        return self._limits

    async def create(self, request: BrowserRequest) -> Browser:
        """Returns a browser that runs. Raises `Busy`, `NotFound`, `InvalidRequest`, and what the provider raises."""
        timeout_s = request.timeout_s if request.timeout_s is not None else self._limits.timeout_s
        if not LEAST_S <= timeout_s <= MOST_S:
            raise InvalidRequest(f"timeout must be {LEAST_S} to {MOST_S} seconds")
        await self._launching.check(request)
        browser = await self._admit(request, timeout_s)
        try:
            sandbox_id = await self._boxes.make(browser)
            browser = await self._state.change(browser, provider_sandbox_id=sandbox_id)
            path = await self._launching.launch(browser, await self._boxes.reach(browser), request.proxies)
            await self._attachments.opened(browser, path, request.proxies)
            return await self._state.started(browser, sandbox_id)
        except BaseException as error:
            problem = str(error) if isinstance(error, PlatformError) else "its start was broken off"
            await asyncio.shield(self.end(browser.id, BrowserStatus.FAILED, problem))
            raise

    async def find(self, id: str) -> Browser | None:
        return await self._state.store.get(id)

    async def query(
        self, user_id: str | None, statuses: Collection[BrowserStatus] | None, limit: int | None = None
    ) -> Sequence[Browser]:
        return await self._state.store.query(user_id=user_id, statuses=statuses, limit=limit)

    async def minutes(self, user_id: str) -> float:
        return await self._state.store.minutes(user_id)

    async def release(self, browser: Browser) -> Browser:
        """End it as its user wants."""
        if browser.status not in LIVE_BROWSERS:
            return browser
        return await self.end(browser.id, BrowserStatus.COMPLETED, None)

    async def end(self, id: str, outcome: BrowserStatus, why: str | None) -> Browser:
        """End it, once: whoever comes second waits for the same end. What is to be kept of it is kept first."""
        task = self._ending.get(id)
        if task is None:
            task = self._ending[id] = asyncio.create_task(self._end(id, outcome, why))
            task.add_done_callback(lambda _: self._ending.pop(id, None))
        return await asyncio.shield(task)

    async def settle(self) -> None:
        """Wait for all ends that have begun."""
        await asyncio.gather(*self._ending.values(), return_exceptions=True)

    async def _left(self, id: str) -> None:
        """A browser's last client has left."""
        with contextlib.suppress(PlatformError):
            await self.end(id, BrowserStatus.COMPLETED, None)

    async def _admit(self, request: BrowserRequest, timeout_s: int) -> Browser:
        async with self._admitting:
            live = await self._state.store.query(statuses=LIVE_BROWSERS)
            own = sum(browser.user_id == request.user_id for browser in live)
            if own >= self._limits.running_per_user or len(live) >= self._limits.running:
                most = min(self._limits.running, self._limits.running_per_user)
                raise Busy(f"as many browsers run as may ({most}); end one, or try again later")
            now = self._state.clock()
            browser = Browser(
                id=f"{PREFIX}{secrets.token_hex(12)}",
                user_id=request.user_id,
                status=BrowserStatus.STARTING,
                provider=self._limits.provider,
                timeout_s=timeout_s,
                keep_alive=request.keep_alive,
                created_at=now,
                updated_at=now,
                expires_at=now + timedelta(seconds=timeout_s),
                options=request.options,
                metadata=request.metadata,
                region=request.region,
                context_id=request.context_id,
                persist=request.persist,
            )
            await self._state.add(browser)
            return browser

    async def _end(self, id: str, outcome: BrowserStatus, why: str | None) -> Browser:
        while True:
            browser = await self._state.store.get(id)
            if browser is None:
                raise NotFound(f"session {id!r} was not found")
            if browser.status not in LIVE_BROWSERS or browser.status is BrowserStatus.ENDING:
                break
            with contextlib.suppress(Conflict):
                browser = await self._state.ending(browser, outcome, why)
                break
        if browser.status is not BrowserStatus.ENDING:
            return browser
        await self._attachments.closed(browser.id)
        if browser.provider_sandbox_id is not None:
            if browser.started_at is not None:
                await self._keep(browser)
            await self._boxes.end(browser.provider, browser.provider_sandbox_id)
        return await self._state.ended(browser)

    async def _keep(self, browser: Browser) -> None:
        """Downloads, and the profile if it is to persist. A browser that cannot be reached ends without."""
        try:
            box = await self._boxes.reach(browser)
            await self._files.keep(browser, box)
            if browser.context_id is not None and browser.persist:
                await self._contexts.save(browser, box)
        except PlatformError as error:
            log.warning("could not keep what browser %s left: %s", browser.id, error)
