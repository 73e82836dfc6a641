"""WebSockets into a sandbox: messages both ways, the subprotocol the service chose, and both sides' close codes."""

from __future__ import annotations

import asyncio

import aiohttp
from yarl import URL

from sandlot.engine.core.errors import ForwardFailed, SandboxLeft
from sandlot.engine.core.http_headers import RawHeaders
from sandlot.engine.node.proxy.forwarding import Forwarding, stop
from sandlot.engine.node.proxy.headers import to_client

MESSAGE_LIMIT = 32 << 20
CLOSE_S = 2.0
INTERNAL_ERROR = 1011
_OPENING = frozenset(
    {b"sec-websocket-accept", b"sec-websocket-protocol", b"sec-websocket-extensions", b"date", b"server"}
)


async def forward_websocket(forwarding: Forwarding) -> None:
    message = await forwarding.receive()
    if message["type"] != "websocket.connect":
        return
    problem: str | None
    try:
        problem = await _exchange(forwarding)
    except asyncio.CancelledError:
        if not forwarding.exchange.caught():
            raise
        if not forwarding.has_answered:
            raise SandboxLeft(f"sandbox {forwarding.target.sandbox_id} ended") from None
        problem = "The sandbox was not found"
    except ForwardFailed:
        if forwarding.exchange.client_left:
            return
        raise
    if problem is not None and not forwarding.exchange.client_left:
        await _close_client(forwarding, INTERNAL_ERROR, problem)


async def _exchange(forwarding: Forwarding) -> str | None:
    """Until both sides are closed. Returns why the sandbox's side is gone, if it went without a word."""

    async def ask(url: URL) -> aiohttp.ClientWebSocketResponse:
        return await forwarding.upstream.session.ws_connect(
            url,
            headers=headers,
            protocols=forwarding.scope.get("subprotocols", ()),
            autoclose=False,
            max_msg_size=MESSAGE_LIMIT,
            timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),
            ssl=False,
        )

    headers = forwarding.headers()
    upstream = await forwarding.reach(ask)
    from_client: asyncio.Task[None] | None = None
    try:
        await _accept(forwarding, upstream)
        from_client = asyncio.create_task(_from_client(forwarding, upstream))
        problem = await _from_sandbox(forwarding, upstream)
        if forwarding.exchange.client_left:  # its goodbye is being handed on
            await asyncio.wait({from_client}, timeout=2 * CLOSE_S)
        return problem
    except OSError:  # the server's word for a client that left while we were sending
        forwarding.exchange.client_left = True
        return None
    finally:
        stop(from_client)
        _cut(upstream)


async def _accept(forwarding: Forwarding, upstream: aiohttp.ClientWebSocketResponse) -> None:
    raw = to_client(upstream._response.raw_headers) or []
    headers: RawHeaders = [(name, value) for name, value in raw if name.lower() not in _OPENING]
    forwarding.has_answered = True
    await forwarding.send({"type": "websocket.accept", "subprotocol": upstream.protocol, "headers": headers})


async def _from_client(forwarding: Forwarding, upstream: aiohttp.ClientWebSocketResponse) -> None:
    """Client to sandbox, until one of them closes."""
    try:
        while True:
            message = await forwarding.receive()
            if message["type"] == "websocket.disconnect":
                forwarding.exchange.client_left = True
                await _close_upstream(upstream, message)
                return
            if message.get("text") is not None:
                await upstream.send_str(message["text"])
            else:
                await upstream.send_bytes(message.get("bytes") or b"")
    except (ConnectionError, aiohttp.ClientError):
        return  # the other direction reports it


async def _close_upstream(upstream: aiohttp.ClientWebSocketResponse, message: object) -> None:
    """Hand on the client's goodbye; a client that was lost without one is lost to the sandbox, too."""
    assert isinstance(message, dict)
    if "reason" not in message:
        _cut(upstream)
        return
    await upstream.close(code=_sendable(message["code"]), message=(message["reason"] or "").encode()[:123])


async def _from_sandbox(forwarding: Forwarding, upstream: aiohttp.ClientWebSocketResponse) -> str | None:
    """Sandbox to client, until one of them closes. Returns why the sandbox's side is gone, if it went without a word."""
    while True:
        message = await upstream.receive()
        if message.type is aiohttp.WSMsgType.TEXT:
            await forwarding.send({"type": "websocket.send", "text": message.data})
        elif message.type is aiohttp.WSMsgType.BINARY:
            await forwarding.send({"type": "websocket.send", "bytes": message.data})
        elif message.type is aiohttp.WSMsgType.CLOSE:
            if not forwarding.exchange.client_left:
                await upstream.close(code=_sendable(message.data))
                await _close_client(forwarding, _sendable(message.data), str(message.extra or ""))
            return None
        elif forwarding.exchange.client_left:
            return None
        else:
            return "the sandbox closed the connection"


async def _close_client(forwarding: Forwarding, code: int, reason: str) -> None:
    short = reason.encode()[:120].decode(errors="ignore")
    try:
        await forwarding.send({"type": "websocket.close", "code": code, "reason": short})
    except (OSError, RuntimeError):
        forwarding.exchange.client_left = True  # it closed at the same moment


def _sendable(code: int | None) -> int:
    """Codes such as 1005 and 1006 are only ever noted, never sent."""
    if code is not None and (code in (1000, 1001, 1002, 1003) or 1007 <= code <= 1014 or 3000 <= code <= 4999):
        return code
    return 1000


def _cut(upstream: aiohttp.ClientWebSocketResponse) -> None:
    upstream._response.close()
