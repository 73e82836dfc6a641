"""The API as one application: its routes, its error bodies, its limits."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from fastapi import FastAPI

from sandlot.engine.api import (
    builds,
    egress,
    errors,
    health,
    histories,
    observations,
    sandboxes,
    secrets,
    snapshots,
    stock,
    storage,
    tags,
    teams,
    templates,
)
from sandlot.engine.api.deps import Deps
from sandlot.engine.control.access import Access
from sandlot.engine.core.errors import EngineError
from sandlot.server.bodies import Bodies, Message, Receive, has_body, too_large
from sandlot.server.failures import failure

Send = Callable[[Message], Awaitable[None]]
DESCRIPTIONS = ("/metrics", "/docs", "/redoc", "/openapi.json", "/docs/oauth2-redirect")
MOST_ELSEWHERE = 1 << 20  # of a body for other routes than those of templates, whose steps can be long
_TEMPLATES = re.compile(r"/(v[23]/)?templates\b")


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
        egress.router,
        sandboxes.router,
        snapshots.router,
        tags.router,
        builds.router,
        storage.router,
        stock.router,
        templates.router,
        teams.router,
        secrets.router,
        health.router,
    ):
        app.include_router(router)
    closed = DESCRIPTIONS if deps.is_closed else ()
    app.add_middleware(Entrance, access=deps.access, most_bytes=deps.max_body_bytes, closed=closed)
    return app


class Entrance:
    """Checks the key and the size of a body before any of it is read.

    The connection stays open, and the server throws the rest away: a client that is hung up on while it sends
    would never read the answer.
    """

    def __init__(self, app: Any, access: Access, most_bytes: int, closed: Collection[str] = ()) -> None:
        self._closed = closed
        self._app, self._access, self._most_bytes = app, access, most_bytes
        self._bodies = Bodies()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        is_plain = scope["type"] != "http" or scope["path"].startswith(builds.UPLOADS) or not has_body(scope)
        if is_plain and scope.get("path") not in self._closed:
            await self._app(scope, receive, send)
            return
        most = self._most_bytes if _TEMPLATES.match(scope["path"]) else min(self._most_bytes, MOST_ELSEWHERE)
        remark = " (SANDLOT_MAX_BODY_MB)" if most == self._most_bytes else ""
        try:
            await self._access.authenticate(_secret(scope))
        except EngineError as error:
            await failure(errors.status_of(error), str(error))(scope, receive, send)
            return
        for name, value in scope["headers"]:
            if name == b"content-length" and (not value.isdigit() or int(value) > most):
                await failure(413, too_large(most, remark))(scope, receive, send)
                return
        await self._app(scope, self._bodies.bounded(scope, receive, most, remark), send)


def _secret(scope: MutableMapping[str, Any]) -> str | None:
    """The key as the routes see it: of `X-API-KEY`, else a bearer token."""
    given = {name: value.decode("latin-1") for name, value in scope["headers"]}
    scheme, _, token = given.get(b"authorization", "").partition(" ")
    return given.get(b"x-api-key") or (token.strip() if scheme.lower() == "bearer" else None)
