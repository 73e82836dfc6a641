"""HTTP through the edge: bodies stream both ways, chunk by chunk, and a lost sandbox cuts the client's connection."""

from __future__ import annotations

import asyncio

import aiohttp
from yarl import URL

from sandlot.engine.gateway import replies
from sandlot.engine.gateway.forwarding import Crossing, Unreached, stop, watch_client
from sandlot.engine.gateway.headers import to_client
from sandlot.engine.gateway.replies import Answer, reply
from sandlot.engine.gateway.upstreams import SandboxGone


async def pass_http(crossing: Crossing) -> None:
    body = _Body(crossing) if _has_body(crossing) else None
    watcher = None if body is not None else asyncio.create_task(watch_client(crossing))
    answer: Answer | None
    try:
        answer = await _exchange(crossing, body)
    except asyncio.CancelledError:
        if not crossing.passage.caught():
            raise
        answer = replies.not_found(crossing.sandbox.id)
    finally:
        stop(watcher or (body.watcher if body is not None else None))
    if answer is None or crossing.passage.client_left:
        return
    if crossing.started:
        if crossing.passage.ended and (reset := crossing.scope.get("extensions", {}).get("sandlot.reset")):
            reset()  # SDKs of the older generation look for the sandbox only then
        raise SandboxGone(crossing.sandbox.id)
    await reply(answer, crossing.scope, crossing.send)


async def _exchange(crossing: Crossing, body: _Body | None) -> Answer | None:
    """Pass the request on and its answer back. None: all of it was passed; else why not."""

    async def ask(url: URL) -> aiohttp.ClientResponse:
        return await crossing.way.session.request(
            crossing.scope["method"], url, headers=headers, data=body, allow_redirects=False, ssl=False
        )

    headers = crossing.headers()
    try:
        response = await crossing.reach(ask)
    except Unreached as unreached:
        return unreached.answer
    try:
        await _pass_back(crossing, response)
    except Unreached as unreached:
        return unreached.answer
    except (aiohttp.ClientError, ConnectionError):
        return replies.bad_upstream(crossing.sandbox.id, crossing.port, "stopped in the middle of its answer")
    finally:
        response.close() if crossing.passage.ended or not response.content.at_eof() else response.release()
    return None


async def _pass_back(crossing: Crossing, response: aiohttp.ClientResponse) -> None:
    headers = to_client(response.raw_headers)
    if headers is None or not 200 <= response.status <= 599:
        raise crossing.refuse("sent an answer that is not valid HTTP")
    send, content = crossing.send, response.content
    crossing.started = True
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    if crossing.scope["method"] == "HEAD":
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return
    while True:
        chunk = await content.readany()
        more = bool(chunk) and not content.at_eof()
        await send({"type": "http.response.body", "body": chunk, "more_body": more})
        if not more:
            return


def _has_body(crossing: Crossing) -> bool:
    for name, value in crossing.scope["headers"]:
        if name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0"):
            return True
    return False


class _Body:
    """The request's body as the client library wants it: an iterable that can be handed over again until it is begun."""

    def __init__(self, crossing: Crossing) -> None:
        self._crossing = crossing
        self._done = False
        self.watcher: asyncio.Task[None] | None = None

    def __aiter__(self) -> _Body:
        return self

    async def __anext__(self) -> bytes:
        while not self._done:
            message = await self._crossing.receive()
            if message["type"] != "http.request":
                self._crossing.passage.leave()
                raise ConnectionResetError("the client left before its request was complete")
            if not message.get("more_body", False):
                self._done = True
                self.watcher = asyncio.create_task(watch_client(self._crossing))
            chunk: bytes = message.get("body", b"")
            if chunk:
                return chunk
        raise StopAsyncIteration
