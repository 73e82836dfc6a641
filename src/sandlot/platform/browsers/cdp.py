"""Speaking the Chrome DevTools Protocol to a browser in a sandbox. What it says is the guest's: bounded, and never acted upon blindly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp

from sandlot.platform.core.errors import Unavailable
from sandlot.platform.core.model import PortAddress
from sandlot.platform.core.ports import Box

PORT = 9222
MAX_MESSAGE = 64 << 20  # bytes; a screenshot of a long page is one message
MAX_LIST = 1 << 20
OPEN_S, CALL_S, CLOSE_S = 20.0, 30.0, 2.0
MOST_TARGETS = 200
_BROWSER_PATH = re.compile(r"/devtools/browser/[0-9A-Za-z-]{1,64}")
_TARGET = re.compile(r"[0-9A-Za-z-]{1,64}")
OnEvent = Callable[[str, str | None, Mapping[str, Any]], Awaitable[None]]


class BrowserSilent(Unavailable):
    """The browser in the sandbox does not answer, or says what it should not."""


def guest_session() -> aiohttp.ClientSession:
    """For requests to guests: no proxies of the host, no cookies, and no way to lead us elsewhere."""
    return aiohttp.ClientSession(trust_env=False, cookie_jar=aiohttp.DummyCookieJar(), trace_configs=[_no_redirects()])


async def open_socket(
    client: aiohttp.ClientSession, address: PortAddress, path: str
) -> aiohttp.ClientWebSocketResponse:
    """Raises `BrowserSilent`."""
    try:
        async with asyncio.timeout(OPEN_S):
            return await client.ws_connect(
                f"{address.url}{path}",
                headers=dict(address.headers),
                max_msg_size=MAX_MESSAGE,
                timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),
                compress=0,
            )
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise BrowserSilent(f"the browser in the sandbox does not answer ({_words(error)})") from error


async def browser_path(client: aiohttp.ClientSession, address: PortAddress) -> str:
    """Where the browser as a whole is spoken to. Raises `BrowserSilent`."""
    found = await _json(client, address, "/json/version")
    said = found.get("webSocketDebuggerUrl") if isinstance(found, dict) else None
    match = _BROWSER_PATH.search(said) if isinstance(said, str) else None
    if match is None:
        raise BrowserSilent("the browser in the sandbox does not say where it is spoken to")
    return match[0]


async def pages(client: aiohttp.ClientSession, address: PortAddress) -> list[dict[str, str]]:
    """Its open pages: `id`, `url`, `title`. Raises `BrowserSilent`."""
    found = await _json(client, address, "/json/list")
    if not isinstance(found, list):
        raise BrowserSilent("the browser in the sandbox does not list its pages")
    kept = [one for one in found[:MOST_TARGETS] if isinstance(one, dict) and one.get("type") == "page"]
    return [
        {name: str(one.get(name, ""))[:2048] for name in ("id", "url", "title")}
        for one in kept
        if is_target(str(one.get("id", "")))
    ]


def is_target(text: str) -> bool:
    return _TARGET.fullmatch(text) is not None


async def _json(client: aiohttp.ClientSession, address: PortAddress, path: str) -> Any:
    try:
        async with asyncio.timeout(OPEN_S), client.get(f"{address.url}{path}", headers=dict(address.headers)) as answer:
            if answer.status != 200:
                raise BrowserSilent(f"the browser in the sandbox answers with status {answer.status}")
            body = await answer.content.read(MAX_LIST + 1)
            while len(body) <= MAX_LIST and (more := await answer.content.read(MAX_LIST)):
                body += more
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise BrowserSilent(f"the browser in the sandbox does not answer ({_words(error)})") from error
    if len(body) > MAX_LIST:
        raise BrowserSilent("the browser in the sandbox says too much about itself")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise BrowserSilent("the browser in the sandbox does not answer with JSON") from None


async def close_browser(box: Box) -> None:
    """Have the browser end in order: only then all of its profile is written. Raises `BrowserSilent`."""

    async def ignore(*_: object) -> None:
        pass

    async with CdpClient(box.address(PORT), "", ignore) as client:
        await client.tell("Browser.close")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CALL_S):
                await client.ended()


class CdpClient:
    """Calls and events of one connection that is ours. Use as a context manager."""

    def __init__(self, address: PortAddress, path: str, on_event: OnEvent) -> None:
        self._address, self._path, self._on_event = address, path, on_event
        self._client = guest_session()
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._calls: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._last = 0
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> CdpClient:
        try:
            path = self._path or await browser_path(self._client, self._address)
            self._socket = await open_socket(self._client, self._address, path)
        except BaseException:
            await self._client.close()
            raise
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._reading is not None and self._socket is not None
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        with contextlib.suppress(Exception):  # it may be gone
            await self._socket.close()
        await self._client.close()

    async def call(self, method: str, session: str | None = None, **params: Any) -> Mapping[str, Any]:
        """Raises `BrowserSilent`, also if the browser refuses."""
        answer: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        number = await self._send(method, session, params, answer)
        try:
            async with asyncio.timeout(CALL_S):
                return await answer
        except TimeoutError:
            raise BrowserSilent(f"the browser in the sandbox does not answer {method}") from None
        finally:
            self._calls.pop(number, None)

    async def tell(self, method: str, session: str | None = None, **params: Any) -> None:
        """Without waiting for the answer, as event handlers must: answers come by the same way as events."""
        await self._send(method, session, params, None)

    async def _send(
        self,
        method: str,
        session: str | None,
        params: Mapping[str, Any],
        answer: asyncio.Future[Mapping[str, Any]] | None,
    ) -> int:
        assert self._socket is not None
        self._last += 1
        number = self._last
        if answer is not None:
            self._calls[number] = answer
        message = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        try:
            async with asyncio.timeout(CALL_S):
                await self._socket.send_str(json.dumps(message))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise BrowserSilent(f"the browser in the sandbox is gone ({type(error).__name__})") from error
        return number

    async def ended(self) -> None:
        """Returns when the connection is over."""
        assert self._reading is not None
        await asyncio.wait((self._reading,))

    async def _read(self) -> None:
        assert self._socket is not None
        try:
            async for message in self._socket:
                if message.type is aiohttp.WSMsgType.TEXT:
                    await self._take(message.data)
        finally:
            for answer in self._calls.values():
                if not answer.done():
                    answer.set_exception(BrowserSilent("the browser in the sandbox is gone"))

    async def _take(self, text: str) -> None:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return
        if not isinstance(found, dict):
            return
        answer = self._calls.pop(found["id"], None) if isinstance(found.get("id"), int) else None
        if answer is not None and not answer.done():
            result = found.get("result")
            if isinstance(result, dict):
                answer.set_result(result)
            else:
                answer.set_exception(BrowserSilent(f"the browser refuses: {str(found.get('error'))[:300]}"))
        elif isinstance(found.get("method"), str):
            params, session = found.get("params"), found.get("sessionId")
            await self._on_event(
                found["method"],
                session if isinstance(session, str) else None,
                params if isinstance(params, dict) else {},
            )


def _no_redirects() -> aiohttp.TraceConfig:
    """What answers is the guest's: it must not send us to other addresses, with our headers, on the host's own network."""

    async def refuse(*_: object) -> None:
        raise BrowserSilent("what answers in the sandbox is not a browser: it redirects")

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(refuse)
    return trace


def _words(error: BaseException) -> str:
    if isinstance(error, aiohttp.WSServerHandshakeError):
        return f"status {error.status}"
    return type(error).__name__
