"""HTTP into a sandbox: bodies stream both ways, chunk by chunk, and a lost sandbox cuts the client's connection."""

from __future__ import annotations

import asyncio

import aiohttp
from yarl import URL

from sandlot.engine.core.errors import BadUpstream, ForwardFailed, SandboxLeft
from sandlot.engine.node.proxy.forwarding import Forwarding, stop, watch_client
from sandlot.engine.node.proxy.headers import to_client
from sandlot.engine.node.proxy.upstreams import ConnectionCut


async def forward_http(forwarding: Forwarding) -> None:
    body = _Body(forwarding) if _has_body(forwarding) else None
    watcher = None if body is not None else asyncio.create_task(watch_client(forwarding))
    try:
        await _exchange(forwarding, body)
    except asyncio.CancelledError:
        if not forwarding.exchange.caught():
            raise
        _fail(forwarding, SandboxLeft(f"sandbox {forwarding.target.sandbox_id} ended"))
    except ForwardFailed as failure:
        _fail(forwarding, failure)
    finally:
        stop(watcher or (body.watcher if body is not None else None))


def _fail(forwarding: Forwarding, failure: ForwardFailed) -> None:
    """Say why there is no answer; cut the connection where one has begun."""
    if forwarding.exchange.client_left:
        return
    if forwarding.has_answered:
        if forwarding.exchange.ended and (reset := forwarding.scope.get("extensions", {}).get("sandlot.reset")):
            reset()  # SDKs of the older generation look for the sandbox only then
        raise ConnectionCut(forwarding.target.sandbox_id)
    raise failure


async def _exchange(forwarding: Forwarding, body: _Body | None) -> None:
    """Pass the request on and its answer back. Raises `ForwardFailed`."""

    async def ask(url: URL) -> aiohttp.ClientResponse:
        return await forwarding.upstream.session.request(
            forwarding.scope["method"], url, headers=headers, data=body, allow_redirects=False, ssl=False
        )

    headers = forwarding.headers()
    response = await forwarding.reach(ask)
    try:
        await _pass_back(forwarding, response)
    except (aiohttp.ClientError, ConnectionError):
        raise BadUpstream("stopped in the middle of its answer") from None
    finally:
        response.close() if forwarding.exchange.ended or not response.content.at_eof() else response.release()


async def _pass_back(forwarding: Forwarding, response: aiohttp.ClientResponse) -> None:
    headers = to_client(response.raw_headers)
    if headers is None or not 200 <= response.status <= 599:
        raise BadUpstream("sent an answer that is not valid HTTP")
    send, content = forwarding.send, response.content
    forwarding.has_answered = True
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    if forwarding.scope["method"] == "HEAD":
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return
    while True:
        chunk = await content.readany()
        more = bool(chunk) and not content.at_eof()
        await send({"type": "http.response.body", "body": chunk, "more_body": more})
        if not more:
            return


def _has_body(forwarding: Forwarding) -> bool:
    for name, value in forwarding.scope["headers"]:
        if name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0"):
            return True
    return False


class _Body:
    """The request's body as the client library wants it: an iterable that can be handed over again until it is begun."""

    def __init__(self, forwarding: Forwarding) -> None:
        self._forwarding = forwarding
        self._done = False
        self.watcher: asyncio.Task[None] | None = None

    def __aiter__(self) -> _Body:
        return self

    async def __anext__(self) -> bytes:
        while not self._done:
            message = await self._forwarding.receive()
            if message["type"] != "http.request":
                self._forwarding.exchange.leave()
                raise ConnectionResetError("the client left before its request was complete")
            if not message.get("more_body", False):
                self._done = True
                self.watcher = asyncio.create_task(watch_client(self._forwarding))
            chunk: bytes = message.get("body", b"")
            if chunk:
                return chunk
        raise StopAsyncIteration
