"""What a sandbox sees at the other end of its tunnel: an HTTP server with its own routes, chosen by the first part of the path."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from sandlot.platform.tunnel.limits import TunnelLimits
from sandlot.platform.tunnel.streams import Speaker
from sandlot.server.http import Http

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
RouteApp = Callable[[Scope, Receive, Send], Awaitable[None]]
MOST_PATH = 8192


class _Refused(Exception):
    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class TunnelRoutes:
    """An ASGI application: `/git/a` goes to the application of the route `git`, as `/a`. There is nothing else."""

    def __init__(self, routes: Mapping[str, RouteApp], limits: TunnelLimits) -> None:
        self._routes = {name.encode(): app for name, app in routes.items()}
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            app = self._chosen(scope)
            async with asyncio.timeout(self._limits.request_s):
                await app(scope, self._bounded(receive), watched)
        except _Refused as refused:
            if started:
                raise
            await _answer(send, refused.status, str(refused))

    def _chosen(self, scope: Scope) -> RouteApp:
        """The route's application; the scope is changed to what it is to see. Raises `_Refused`."""
        if scope["type"] != "http":
            raise _Refused(501, "this tunnel carries plain HTTP only")
        raw: bytes = scope["raw_path"].partition(b"?")[0]
        if len(raw) > MOST_PATH:
            raise _Refused(414, "the path is too long")
        _, _, rest = raw.partition(b"/")
        name, _, inner = rest.partition(b"/")
        app = self._routes.get(name) if raw.startswith(b"/") else None
        if app is None:
            raise _Refused(404, f"this tunnel leads to {', '.join(f'/{one.decode()}/' for one in self._routes)} only")
        path: str = scope["path"]
        if any(part in (".", "..") for part in path.replace("\\", "/").split("/")):
            raise _Refused(400, "the path may not go up")
        scope["raw_path"], scope["path"] = b"/" + inner, path[1 + len(name) :] or "/"
        scope["root_path"] = ""
        return app

    def _bounded(self, receive: Receive) -> Receive:
        seen, complete = 0, False

        async def counted() -> Message:
            nonlocal seen, complete
            if complete:
                return await receive()
            try:
                async with asyncio.timeout(self._limits.body_s):
                    message = await receive()
            except TimeoutError:
                raise _Refused(408, "the rest of the request did not come") from None
            seen += len(message.get("body", b""))
            if seen > self._limits.body_bytes:
                raise _Refused(
                    413, f"the body is larger than the {self._limits.body_bytes >> 20} MiB this tunnel carries"
                )
            complete = not message.get("more_body", False)
            return message

        return counted


async def _answer(send: Send, status: int, words: str) -> None:
    body = (words + "\n").encode()
    # The rest of a body that nobody wants would be read as the next request otherwise.
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class TunnelServer:
    """Speaks HTTP on streams: the platform's own server, with its limits on heads, on transports that are no sockets."""

    def __init__(self, routes: Mapping[str, RouteApp], limits: TunnelLimits) -> None:
        self._config = uvicorn.Config(
            TunnelRoutes(routes, limits),
            http=Http,
            ws="none",
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=max(1, int(limits.idle_s)),
        )
        self._config.load()
        self._state = ServerState()

    @property
    def speaker(self) -> Speaker:
        return lambda: Http(self._config, self._state, {})

    async def close(self) -> None:
        """End the requests that are still being answered."""
        tasks = list(self._state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
