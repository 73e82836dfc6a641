"""Selenium: requests of the WebDriver protocol go to a driver in the sandbox, which is attached to the browser that runs there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from sandlot.platform.browsers import cdp
from sandlot.platform.browsers.attachments import Attachments
from sandlot.platform.browsers.boxes import HERE, BrowserBoxes, run_in
from sandlot.platform.core.browsers import Browser
from sandlot.platform.core.errors import InvalidRequest, PlatformError, TooLarge, Unavailable

PORT = 9515
MAX_ANSWER = 32 << 20
ANSWER_S = 330.0  # a page may take the five minutes that WebDriver waits by default
_PATH = re.compile(r"/(status|session(/[A-Za-z0-9._~-]+)*)")
_SESSION = re.compile(r"/session/[A-Za-z0-9]+")
_KEPT = frozenset(
    {"browserName", "pageLoadStrategy", "timeouts", "unhandledPromptBehavior", "strictFileInteractability"}
)


@dataclass(frozen=True, slots=True)
class DriverAnswer:
    status: int
    body: bytes


class WebDriver:
    def __init__(self, *, attachments: Attachments, boxes: BrowserBoxes) -> None:
        self._attachments, self._boxes = attachments, boxes
        self._held: dict[str, tuple[asyncio.Event, asyncio.Task[None]]] = {}
        self._starting = asyncio.Lock()
        self._started: set[str] = set()

    async def forward(self, browser: Browser, method: str, path: str, body: bytes) -> DriverAnswer:
        """Raises `InvalidRequest`, `Unavailable`."""
        if not _PATH.fullmatch(path):
            raise InvalidRequest("this is no path of the WebDriver protocol")
        is_new = method == "POST" and path == "/session"
        if is_new:
            body = with_debugger(body)
            await self._start(browser)
        answer = await self._ask(browser, method, path, body)
        if is_new and answer.status == 200:
            self._hold(browser)
        elif method == "DELETE" and _SESSION.fullmatch(path) and answer.status == 200:
            await self._release(browser.id)
        return answer

    async def close(self) -> None:
        tasks = [task for _, task in self._held.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _start(self, browser: Browser) -> None:
        async with self._starting:
            if browser.id not in self._started:
                await run_in(await self._boxes.reach(browser), f"{HERE}/driver.sh", str(PORT))
                self._started.add(browser.id)

    async def _ask(self, browser: Browser, method: str, path: str, body: bytes) -> DriverAnswer:
        address = await self._boxes.address(browser, PORT)
        headers = {**address.headers, "Content-Type": "application/json; charset=utf-8"}
        try:
            async with (
                asyncio.timeout(ANSWER_S),
                cdp.guest_session() as client,
                client.request(method, f"{address.url}{path}", headers=headers, data=body or None) as answer,
            ):
                content = bytearray()
                async for piece in answer.content.iter_chunked(256 << 10):
                    content += piece
                    if len(content) > MAX_ANSWER:
                        raise TooLarge(f"the answer is larger than the {MAX_ANSWER >> 20} MiB that are carried")
                return DriverAnswer(answer.status, bytes(content))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"the driver in the sandbox does not answer ({type(error).__name__})") from error

    def _hold(self, browser: Browser) -> None:
        """A driver's session is a client of the browser, though it has no connection."""
        if browser.id not in self._held:
            over = asyncio.Event()
            task = asyncio.create_task(self._attached(browser, over))
            self._held[browser.id] = (over, task)
            task.add_done_callback(lambda _: self._held.pop(browser.id, None))

    async def _attached(self, browser: Browser, over: asyncio.Event) -> None:
        with contextlib.suppress(PlatformError):
            async with self._attachments.client(browser) as client:
                ends = [asyncio.create_task(event.wait()) for event in (over, client.over)]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for end in ends:
                    end.cancel()
        self._started.discard(browser.id)

    async def _release(self, id: str) -> None:
        held = self._held.get(id)
        if held is not None:
            held[0].set()
            await asyncio.gather(held[1], return_exceptions=True)


def with_debugger(body: bytes) -> bytes:
    """The same request for a session, of the browser that runs already. Raises `InvalidRequest`."""
    try:
        asked: Any = json.loads(body)
        given = asked["capabilities"]
        wanted: dict[str, Any] = dict(given.get("alwaysMatch") or {})
        for choice in (given.get("firstMatch") or [{}])[:1]:
            wanted.update(choice)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InvalidRequest("the request for a session must be WebDriver's: JSON with capabilities") from None
    kept: Mapping[str, Any] = {name: value for name, value in wanted.items() if name in _KEPT}
    always = {**kept, "browserName": "chrome", "goog:chromeOptions": {"debuggerAddress": f"127.0.0.1:{cdp.PORT}"}}
    return json.dumps({"capabilities": {"alwaysMatch": always, "firstMatch": [{}]}}).encode()
