"""One request on its way into a sandbox: where it goes, and reaching a service there, on loopback too."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from sandlot.engine.core.model import Sandbox
from sandlot.engine.gateway import replies
from sandlot.engine.gateway.asgi import Receive, Scope, Send
from sandlot.engine.gateway.headers import to_upstream
from sandlot.engine.gateway.replies import Answer
from sandlot.engine.gateway.upstreams import Passage, Way, Ways

Reached = TypeVar("Reached")
CLOSED = frozenset({errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT, errno.ECONNRESET})


class Unreached(Exception):
    """The service could not be asked, or its answer cannot be passed on."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.message)
        self.answer = answer


@dataclass(slots=True)
class Crossing:
    scope: Scope
    receive: Receive
    send: Send
    sandbox: Sandbox
    port: int
    ways: Ways
    way: Way
    passage: Passage
    started: bool = False  # the client has got the head of the answer: no other answer is possible any more

    def headers(self) -> CIMultiDict[str]:
        return to_upstream(self.scope, self.sandbox, self.port)

    def refuse(self, what: str) -> Unreached:
        return Unreached(replies.bad_upstream(self.sandbox.id, self.port, what))

    def _url(self, port: int) -> URL:
        host, dialled = self.ways.dial(self.sandbox, port)
        secure = self.port in self.sandbox.network.https_ports
        return URL.build(
            scheme="https" if secure else "http",
            host=host,
            port=dialled,
            path=_ascii(self.scope["raw_path"]),
            query_string=_ascii(self.scope["query_string"]),
            encoded=True,
        )

    async def reach(self, ask: Callable[[URL], Awaitable[Reached]]) -> Reached:
        """Ask the service at its port; if the port is closed, through a relay to the guest's loopback. Raises `Unreached`."""
        port = self.way.relayed(self.port)
        try:
            return await self._ask(ask, port)
        except _Closed:
            if port != self.port and self.way.forget_relay(self.port):
                return await self._reach_anew(ask)
        return await self._through_relay(ask)

    async def _reach_anew(self, ask: Callable[[URL], Awaitable[Reached]]) -> Reached:
        try:
            return await self._ask(ask, self.port)
        except _Closed:
            return await self._through_relay(ask)

    async def _through_relay(self, ask: Callable[[URL], Awaitable[Reached]]) -> Reached:
        closed = Unreached(replies.port_closed(self.sandbox.id, self.port))
        through = await self.ways.find_relay(self.way, self.sandbox.id, self.port)
        if through is None:
            raise closed
        try:
            return await self._ask(ask, through)
        except _Closed:
            self.way.forget_relay(self.port)
            raise closed from None

    async def _ask(self, ask: Callable[[URL], Awaitable[Reached]], port: int) -> Reached:
        """The one place where the client library's errors become ours."""
        try:
            return await ask(self._url(port))
        except aiohttp.ClientConnectorSSLError:
            raise self.refuse("does not speak TLS on this port") from None
        except aiohttp.ClientConnectorError as error:
            if error.os_error.errno in CLOSED:
                raise _Closed from None
            raise self.refuse("cannot be connected to") from None
        except (aiohttp.ConnectionTimeoutError, TimeoutError):
            raise _Closed from None
        except aiohttp.WSServerHandshakeError as error:
            raise Unreached(_refused_websocket(self, error)) from None
        except aiohttp.ServerDisconnectedError:
            raise self.refuse("closed the connection without an answer") from None
        except (aiohttp.ClientError, ValueError, OSError):
            raise self.refuse("sent an answer that is not valid HTTP") from None


class _Closed(Exception):
    """Nothing listens at the port that was dialled."""


def _refused_websocket(crossing: Crossing, error: aiohttp.WSServerHandshakeError) -> Answer:
    status = error.status if 400 <= error.status <= 599 else 502
    fields = {"sandboxId": crossing.sandbox.id, "port": crossing.port}
    return Answer(status, f"The service in the sandbox refused the WebSocket with status {error.status}", fields)


def _ascii(raw: bytes) -> str:
    """As it was sent; the only bytes that are rewritten are those no URL may have."""
    text = raw.decode("latin-1")
    return text if text.isascii() else "".join(c if c.isascii() else f"%{ord(c):02X}" for c in text)


async def watch_client(crossing: Crossing) -> None:
    """End the crossing when its client goes away; otherwise a silent stream would be held open for nobody."""
    while True:
        message = await crossing.receive()
        if message["type"] in ("http.disconnect", "websocket.disconnect"):
            crossing.passage.leave()
            return


def stop(task: asyncio.Task[None] | None) -> None:
    if task is not None and not task.done():
        task.cancel()
