"""One request on its way into a sandbox: where it goes, and reaching a service there, on the guest's loopback too."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from sandlot.engine.core.errors import BadUpstream, PortClosed, UpstreamRefused
from sandlot.engine.core.model import ProxyTarget
from sandlot.engine.core.ports.node import Receive, Scope, Send
from sandlot.engine.node.proxy.headers import to_upstream
from sandlot.engine.node.proxy.upstreams import Exchange, Upstream

Reached = TypeVar("Reached")
CLOSED = frozenset({errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT, errno.ECONNRESET})


Dial = Callable[[str, int], tuple[str, int]]  # where a port of the machine at this address is reached
FindRelay = Callable[
    [str, int], Awaitable[int | None]
]  # the port of a relay to the guest's loopback, by sandbox and port


@dataclass(slots=True)
class Forwarding:
    scope: Scope
    receive: Receive
    send: Send
    target: ProxyTarget
    upstream: Upstream
    exchange: Exchange
    dial: Dial
    find_relay: FindRelay
    has_answered: bool = False  # the client has got the head of the answer: no other answer is possible any more

    def headers(self) -> CIMultiDict[str]:
        return to_upstream(self.scope, self.target)

    def _url(self, port: int) -> URL:
        host, dialled = self.dial(self.upstream.address, port)
        return URL.build(
            scheme="https" if self.target.use_tls else "http",
            host=host,
            port=dialled,
            path=_ascii(self.scope["raw_path"]),
            query_string=_ascii(self.scope["query_string"]),
            encoded=True,
        )

    async def reach(self, ask: Callable[[URL], Awaitable[Reached]]) -> Reached:
        """Ask the service at its port; if the port is closed, through a relay to the guest's loopback. Raises `ForwardFailed`."""
        port = self.upstream.relayed(self.target.port)
        try:
            return await self._ask(ask, port)
        except _Closed:
            if port != self.target.port and self.upstream.forget_relay(self.target.port):
                return await self._reach_anew(ask)
        return await self._through_relay(ask)

    async def _reach_anew(self, ask: Callable[[URL], Awaitable[Reached]]) -> Reached:
        try:
            return await self._ask(ask, self.target.port)
        except _Closed:
            return await self._through_relay(ask)

    async def _through_relay(self, ask: Callable[[URL], Awaitable[Reached]]) -> Reached:
        closed = PortClosed(f"nothing listens at port {self.target.port}")
        relay = await self.find_relay(self.target.sandbox_id, self.target.port)
        if relay is None:
            raise closed
        self.upstream.relay(self.target.port, relay)
        try:
            return await self._ask(ask, relay)
        except _Closed:
            self.upstream.forget_relay(self.target.port)
            raise closed from None

    async def _ask(self, ask: Callable[[URL], Awaitable[Reached]], port: int) -> Reached:
        """The one place where the client library's errors become ours."""
        try:
            return await ask(self._url(port))
        except aiohttp.ClientConnectorSSLError:
            raise BadUpstream("does not speak TLS on this port") from None
        except aiohttp.ClientConnectorError as error:
            if error.os_error.errno in CLOSED:
                raise _Closed from None
            raise BadUpstream("cannot be connected to") from None
        except (aiohttp.ConnectionTimeoutError, TimeoutError):
            raise _Closed from None
        except aiohttp.WSServerHandshakeError as error:
            raise UpstreamRefused(error.status) from None
        except aiohttp.ServerDisconnectedError:
            raise BadUpstream("closed the connection without an answer") from None
        except (aiohttp.ClientError, ValueError, OSError):
            raise BadUpstream("sent an answer that is not valid HTTP") from None


class _Closed(Exception):
    """Nothing listens at the port that was dialled."""


def _ascii(raw: bytes) -> str:
    """As it was sent; the only bytes that are rewritten are those no URL may have."""
    text = raw.decode("latin-1")
    return text if text.isascii() else "".join(c if c.isascii() else f"%{ord(c):02X}" for c in text)


async def watch_client(forwarding: Forwarding) -> None:
    """End the exchange when its client goes away; otherwise a silent stream would be held open for nobody."""
    while True:
        message = await forwarding.receive()
        if message["type"] in ("http.disconnect", "websocket.disconnect"):
            forwarding.exchange.leave()
            return


def stop(task: asyncio.Task[None] | None) -> None:
    if task is not None and not task.done():
        task.cancel()
