"""WebSockets into a sandbox: the handshake is ours on both sides, then both connections are one, and no message is held here."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from collections.abc import Callable

import aiohttp
from yarl import URL

from sandlot.engine.core.errors import BadUpstream, SandboxLeft, UpstreamRefused
from sandlot.engine.core.http_headers import RawHeaders
from sandlot.engine.node.proxy.forwarding import Forwarding, stop
from sandlot.engine.node.proxy.headers import to_client
from sandlot.engine.node.proxy.pipe import Pipe, share

BUDGET = 16 << 20  # what WebSockets of one sandbox may have on their way, all together
INTERNAL_ERROR = 1011
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_OPENING = frozenset(
    {b"sec-websocket-accept", b"sec-websocket-protocol", b"sec-websocket-extensions", b"date", b"server"}
)
Taken = tuple[asyncio.Transport, asyncio.BaseProtocol]


async def forward_websocket(forwarding: Forwarding) -> None:
    message = await forwarding.receive()
    if message["type"] != "websocket.connect":
        return
    try:
        response, key = await _reach(forwarding)
    except asyncio.CancelledError:
        if not forwarding.exchange.caught():
            raise
        if forwarding.exchange.client_left:
            return
        raise SandboxLeft(f"sandbox {forwarding.target.sandbox_id} ended") from None
    try:
        await _join(forwarding, response, key)
    finally:
        response.close()


async def _reach(forwarding: Forwarding) -> tuple[aiohttp.ClientResponse, bytes]:
    """The service's answer to the handshake. Raises `ForwardFailed`."""
    key = base64.b64encode(os.urandom(16))
    headers = forwarding.headers()
    headers.update({"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"})
    headers["Sec-WebSocket-Key"] = key.decode()
    if offered := forwarding.scope.get("subprotocols"):
        headers["Sec-WebSocket-Protocol"] = ", ".join(offered)

    async def ask(url: URL) -> aiohttp.ClientResponse:
        return await forwarding.upstream.session.request("GET", url, headers=headers, allow_redirects=False, ssl=False)

    watcher = asyncio.create_task(_watch(forwarding))
    try:
        return await forwarding.reach(ask), key
    finally:
        stop(watcher)


async def _watch(forwarding: Forwarding) -> None:
    """A client says nothing before it is let in. Whatever comes means that it is gone, or knows no manners."""
    await forwarding.receive()
    forwarding.exchange.leave()


async def _join(forwarding: Forwarding, response: aiohttp.ClientResponse, key: bytes) -> None:
    _check(response, key)
    pipe = Pipe(lambda: share(BUDGET, len(forwarding.upstream.exchanges)))
    problem: str | None
    try:
        client = await _accept(forwarding, response)
        pipe.begin(client, *_taken(response))
    except OSError:  # the server's word for a client that has left
        return
    try:
        problem = await pipe.ended()
    except asyncio.CancelledError:
        if not forwarding.exchange.caught():
            raise
        problem = "The sandbox was not found"
    forwarding.exchange.client_left = pipe.client_left
    await pipe.end((INTERNAL_ERROR, problem) if problem is not None else None)


def _check(response: aiohttp.ClientResponse, key: bytes) -> None:
    """Raises `ForwardFailed` unless this is a WebSocket that is open."""
    if response.status != 101:
        raise UpstreamRefused(response.status)
    accept = base64.b64encode(hashlib.sha1(key + _GUID).digest()).decode()
    is_open = (
        response.headers.get("Upgrade", "").lower() == "websocket"
        and response.headers.get("Sec-WebSocket-Accept") == accept
        and response.connection is not None
    )
    if not is_open:
        raise BadUpstream("sent an answer that is not valid for a WebSocket")


async def _accept(forwarding: Forwarding, response: aiohttp.ClientResponse) -> Taken:
    """Let the client in, and take its connection. Raises `OSError` if it has left."""
    offered = forwarding.scope.get("subprotocols", ())
    chosen = response.headers.get("Sec-WebSocket-Protocol")
    raw = to_client(response.raw_headers) or []
    headers: RawHeaders = [(name, value) for name, value in raw if name.lower() not in _OPENING]
    forwarding.has_answered = True
    await forwarding.send(
        {"type": "websocket.accept", "subprotocol": chosen if chosen in offered else None, "headers": headers}
    )
    take_over: Callable[[], Taken] = forwarding.scope["extensions"]["sandlot.take_over"]
    return take_over()


def _taken(response: aiohttp.ClientResponse) -> tuple[Taken, bytes]:
    """The service's connection, not being read from, and what it has said since the handshake."""
    connection = response.connection
    assert connection is not None
    protocol, transport = connection.protocol, connection.transport
    if protocol is None or transport is None or transport.is_closing():
        raise ConnectionResetError("the service has left")
    protocol.pause_reading()
    early, protocol._tail = protocol._tail, b""
    return (transport, protocol), early
