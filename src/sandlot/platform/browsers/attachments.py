"""Who is connected to which browser, and what stands beside them: its log, its observer, where it is spoken to."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandlot.platform.browsers import cdp
from sandlot.platform.browsers.boxes import BrowserBoxes
from sandlot.platform.browsers.launching import spoken_at
from sandlot.platform.browsers.log_book import LogBook
from sandlot.platform.browsers.observer import BrowserObserver, Duties
from sandlot.platform.browsers.proxies import credentials
from sandlot.platform.browsers.recording import Recording
from sandlot.platform.browsers.state import BrowserState
from sandlot.platform.core.browsers import Browser, BrowserStatus, ProxyRule
from sandlot.platform.core.errors import Busy, Conflict, NotFound, Unavailable
from sandlot.platform.core.model import PortAddress

MOST_CLIENTS = 20  # of one browser
LEAVE_S = 5.0


@dataclass(eq=False, slots=True)
class BrowserClient:
    """One client of a browser. `over` is set when the browser ends: then it must leave."""

    log: LogBook | None
    over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False, slots=True)
class _Open:
    keep_alive: bool
    path: str | None
    log: LogBook | None
    observer: BrowserObserver | None
    clients: set[BrowserClient] = field(default_factory=set)
    are_gone: asyncio.Event = field(default_factory=asyncio.Event)
    idle_since: float = field(default_factory=time.monotonic)


class Attachments:
    def __init__(self, *, state: BrowserState, boxes: BrowserBoxes, directory: Path) -> None:
        self._state, self._boxes, self._directory = state, boxes, directory
        self._open: dict[str, _Open] = {}
        self._opening = asyncio.Lock()
        self._any = asyncio.Event()  # set while browsers are open
        self._is_closing = False
        self._leaving: set[asyncio.Task[None]] = set()
        self.on_left: Callable[[str], Awaitable[None]] | None = None

    def place(self, id: str) -> Path:
        """Where what is kept of a browser is."""
        return self._directory / id

    async def opened(self, browser: Browser, path: str | None, proxies: Sequence[ProxyRule] = ()) -> None:
        """A browser runs, or is found running."""
        place, observer = self.place(browser.id), None
        duties = Duties(options=browser.options, credentials=credentials(proxies))
        if duties.are_any:
            recording = Recording(place / "recording") if browser.options.is_recorded else None
            observer = BrowserObserver(duties, self._finder(browser.id), recording)
        log = LogBook(place / "log.jsonl", self._state.clock) if browser.options.keeps_log else None
        self._open[browser.id] = _Open(browser.keep_alive, path, log, observer)
        self._any.set()
        if observer is not None:
            try:
                await observer.ready()
            except TimeoutError:
                raise Unavailable("the browser in the sandbox does not let itself be watched") from None

    async def closed(self, id: str) -> None:
        """It ends: its clients are cut."""
        found = self._open.pop(id, None)
        if found is None:
            return
        if not self._open:
            self._any.clear()
        for client in found.clients:
            client.over.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                while found.clients:
                    found.are_gone.clear()
                    await found.are_gone.wait()
        if found.observer is not None:
            await found.observer.close()
        if found.log is not None:
            found.log.close()

    async def close(self) -> None:
        """The platform stops. Browsers go on, and can be connected to again."""
        self._is_closing = True
        for id in list(self._open):
            await self.closed(id)
        await asyncio.gather(*self._leaving, return_exceptions=True)

    async def some(self, within_s: float) -> None:
        """Returns when there are browsers, or after a while."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._any.wait(), within_s)

    def idle(self, keep_alive: bool, longer_than_s: float) -> list[str]:
        """Browsers that nobody has been connected to for so long."""
        limit = time.monotonic() - longer_than_s
        return [
            id
            for id, one in self._open.items()
            if one.keep_alive == keep_alive and not one.clients and one.idle_since < limit
        ]

    def flush_log(self, id: str) -> Path:
        found = self._open.get(id)
        if found is not None and found.log is not None:
            found.log.flush()
        return self.place(id) / "log.jsonl"

    async def running(self, id: str) -> Browser:
        """Raises `NotFound`, and `Conflict` if it does not run."""
        browser = await self._state.store.get(id)
        if browser is None:
            raise NotFound(f"session {id[:80]!r} was not found")
        if browser.status is not BrowserStatus.RUNNING:
            why = f": {browser.problem}" if browser.problem else ""
            raise Conflict(f"session {id!r} does not run; it is {browser.status.value}{why}")
        return browser

    async def spoken_at(self, browser: Browser) -> tuple[PortAddress, str]:
        """Where a browser is spoken to."""
        box, one = await self._boxes.reach(browser), self._open.get(browser.id)
        if one is None or one.path is None:
            path = await spoken_at(box)
            if one is None:
                return box.address(cdp.PORT), path
            one.path = path
        return box.address(cdp.PORT), one.path

    @contextlib.asynccontextmanager
    async def client(self, browser: Browser) -> AsyncIterator[BrowserClient]:
        """One client of a browser, for as long as it is connected. Raises `Busy`."""
        async with self._opening:
            if browser.id not in self._open:
                await self.opened(browser, None)
        one = self._open[browser.id]
        if len(one.clients) >= MOST_CLIENTS:
            raise Busy(f"a browser takes {MOST_CLIENTS} connections at most")
        client = BrowserClient(one.log)
        one.clients.add(client)
        try:
            yield client
        finally:
            self._gone(browser.id, one, client)

    def _gone(self, id: str, one: _Open, client: BrowserClient) -> None:
        one.clients.discard(client)
        one.are_gone.set()
        one.idle_since = time.monotonic()
        is_over = not one.clients and not one.keep_alive and self._open.get(id) is one
        if is_over and not self._is_closing and self.on_left is not None:
            leaving = asyncio.ensure_future(self.on_left(id))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    def _finder(self, id: str) -> Callable[[], Awaitable[tuple[PortAddress, str]]]:
        async def find() -> tuple[PortAddress, str]:
            browser = await self._state.store.get(id)
            if browser is None or browser.status not in (BrowserStatus.STARTING, BrowserStatus.RUNNING):
                raise NotFound(f"session {id!r} does not run")
            return await self.spoken_at(browser)

        return find
