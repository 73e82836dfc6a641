"""The API as one application: its routes, its error bodies, its limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException

from sandlot.engine.api import (
    builds,
    errors,
    health,
    histories,
    observations,
    sandboxes,
    snapshots,
    stock,
    storage,
    tags,
    teams,
    templates,
)
from sandlot.engine.api.deps import Deps
from sandlot.server.failures import failure

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def build_app(deps: Deps) -> FastAPI:
    app = FastAPI(
        title="Sandlot",
        version=deps.version,
        description="E2B's control plane, served by this machine. The official E2B SDKs drive it.",
        redirect_slashes=False,
    )
    app.state.deps = deps
    errors.install(app)
    # Routes with fixed names before those with an id in their place.
    for router in (
        observations.router,
        histories.router,
        sandboxes.router,
        snapshots.router,
        tags.router,
        builds.router,
        storage.router,
        stock.router,
        templates.router,
        teams.router,
        health.router,
    ):
        app.include_router(router)
    app.add_middleware(BodyLimit, most_bytes=deps.max_body_bytes)
    return app


class BodyLimit:
    """Refuses a body that is larger than any request of this API needs, before it is in memory.

    The connection stays open, and the server throws the rest away: a client that is hung up on while it sends
    would never read the answer.
    """

    def __init__(self, app: Any, most_bytes: int) -> None:
        self._app, self._most_bytes = app, most_bytes

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(builds.UPLOADS):
            await self._app(scope, receive, send)
            return
        for name, value in scope["headers"]:
            if name == b"content-length" and (not value.isdigit() or int(value) > self._most_bytes):
                await failure(413, self._too_large())(scope, receive, send)
                return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._most_bytes:
                raise HTTPException(413, self._too_large())
            return message

        await self._app(scope, counted, send)

    def _too_large(self) -> str:
        return f"the body is larger than the {self._most_bytes >> 20} MiB this server reads (SANDLOT_MAX_BODY_MB)"
