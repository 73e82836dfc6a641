"""WebSockets through the edge: messages both ways, the subprotocol the service chose, and both sides' close codes."""

from __future__ import annotations

import asyncio

import aiohttp
from yarl import URL

from sandlot.engine.gateway import replies
from sandlot.engine.gateway.asgi import RawHeaders
from sandlot.engine.gateway.forwarding import Crossing, Unreached, stop
from sandlot.engine.gateway.headers import to_client
from sandlot.engine.gateway.replies import Answer, reply

MESSAGE_LIMIT = 32 << 20
CLOSE_S = 2.0
INTERNAL_ERROR = 1011
_OPENING = frozenset(
    {b"sec-websocket-accept", b"sec-websocket-protocol", b"sec-websocket-extensions", b"date", b"server"}
)


async def pass_websocket(crossing: Crossing) -> None:
    message = await crossing.receive()
    if message["type"] != "websocket.connect":
        return
    answer: Answer | None
    try:
        answer = await _exchange(crossing)
    except asyncio.CancelledError:
        if not crossing.passage.caught():
            raise
        answer = replies.not_found(crossing.sandbox.id)
    if answer is None or crossing.passage.client_left:
        return
    if crossing.started:
        await _close_client(crossing, INTERNAL_ERROR, answer.message)
    else:
        await reply(answer, crossing.scope, crossing.send)


async def _exchange(crossing: Crossing) -> Answer | None:
    async def ask(url: URL) -> aiohttp.ClientWebSocketResponse:
        return await crossing.way.session.ws_connect(
            url,
            headers=headers,
            protocols=crossing.scope.get("subprotocols", ()),
            autoclose=False,
            max_msg_size=MESSAGE_LIMIT,
            timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),
            ssl=False,
        )

    headers = crossing.headers()
    try:
        upstream = await crossing.reach(ask)
    except Unreached as unreached:
        return unreached.answer
    from_client: asyncio.Task[None] | None = None
    try:
        await _accept(crossing, upstream)
        from_client = asyncio.create_task(_from_client(crossing, upstream))
        answer = await _from_sandbox(crossing, upstream)
        if crossing.passage.client_left:  # its goodbye is being handed on
            await asyncio.wait({from_client}, timeout=2 * CLOSE_S)
        return answer
    except OSError:  # the server's word for a client that left while we were sending
        crossing.passage.client_left = True
        return None
    finally:
        stop(from_client)
        _cut(upstream)


async def _accept(crossing: Crossing, upstream: aiohttp.ClientWebSocketResponse) -> None:
    raw = to_client(upstream._response.raw_headers) or []
    headers: RawHeaders = [(name, value) for name, value in raw if name.lower() not in _OPENING]
    crossing.started = True
    await crossing.send({"type": "websocket.accept", "subprotocol": upstream.protocol, "headers": headers})


async def _from_client(crossing: Crossing, upstream: aiohttp.ClientWebSocketResponse) -> None:
    """Client to sandbox, until one of them closes."""
    try:
        while True:
            message = await crossing.receive()
            if message["type"] == "websocket.disconnect":
                crossing.passage.client_left = True
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


async def _from_sandbox(crossing: Crossing, upstream: aiohttp.ClientWebSocketResponse) -> Answer | None:
    """Sandbox to client, until one of them closes. An answer: why the sandbox's side is gone."""
    while True:
        message = await upstream.receive()
        if message.type is aiohttp.WSMsgType.TEXT:
            await crossing.send({"type": "websocket.send", "text": message.data})
        elif message.type is aiohttp.WSMsgType.BINARY:
            await crossing.send({"type": "websocket.send", "bytes": message.data})
        elif message.type is aiohttp.WSMsgType.CLOSE:
            if not crossing.passage.client_left:
                await upstream.close(code=_sendable(message.data))
                await _close_client(crossing, _sendable(message.data), str(message.extra or ""))
            return None
        elif crossing.passage.client_left:
            return None
        else:
            return Answer(502, "the sandbox closed the connection")


async def _close_client(crossing: Crossing, code: int, reason: str) -> None:
    short = reason.encode()[:120].decode(errors="ignore")
    try:
        await crossing.send({"type": "websocket.close", "code": code, "reason": short})
    except (OSError, RuntimeError):
        crossing.passage.client_left = True  # it closed at the same moment


def _sendable(code: int | None) -> int:
    """Codes such as 1005 and 1006 are only ever noted, never sent."""
    if code is not None and (code in (1000, 1001, 1002, 1003) or 1007 <= code <= 1014 or 3000 <= code <= 4999):
        return code
    return 1000


def _cut(upstream: aiohttp.ClientWebSocketResponse) -> None:
    upstream._response.close()
