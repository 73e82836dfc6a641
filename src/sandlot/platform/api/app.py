"""The platform as one ASGI application, alone or beside the engine on the same port."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from sandlot.platform.api import (
    agents,
    audit,
    browser_sockets,
    browsers,
    commands,
    console,
    console_histories,
    console_inside,
    console_operation,
    console_sandboxes,
    console_screen,
    console_usage,
    errors,
    events,
    files,
    models,
    repositories,
    sandboxes,
    tasks,
    terminals,
    triggers,
    webhooks,
)
from sandlot.platform.api.browser_addresses import BASE as BROWSERS
from sandlot.platform.api.browser_addresses import WEBDRIVER, is_signed
from sandlot.platform.api.credentials import secret_of
from sandlot.platform.api.deps import CALLER, Deps
from sandlot.platform.api.git import PATH as GIT
from sandlot.platform.api.git import GitEndpoint
from sandlot.platform.api.live_streams import Check, LiveStreams
from sandlot.platform.api.mcp import PATH as MCP
from sandlot.platform.api.mcp import McpEndpoint
from sandlot.platform.api.models import PATH as MODELS
from sandlot.platform.api.routing import Routing
from sandlot.platform.api.websockets import refuse_websocket
from sandlot.platform.console.origins import check_origin, cookie_of
from sandlot.platform.core.errors import PlatformError
from sandlot.platform.core.model import Caller
from sandlot.platform.core.model import Scope as KeyScope
from sandlot.platform.triggers.inbox import MAX_BODY as MAX_DELIVERY
from sandlot.server.bodies import Bodies
from sandlot.server.failures import failure

Loops = Callable[[], Coroutine[Any, Any, None]]
PREFIX = "/platform"
OPEN = frozenset(
    {
        f"{PREFIX}/docs",
        f"{PREFIX}/openapi.json",
        f"{PREFIX}/health",
        console.LOGIN,
        f"{console.LOGIN}/confirm",
        webhooks.GITHUB,  # signed instead
    }
)  # these need no key
MAX_UPLOAD = 4 << 30
MAX_FILE = 40 << 20  # a file's content, in JSON or as it is
MAX_JSON = 4 << 20
MAX_BROWSER_FILE = 512 << 20  # for a browser to take, and extensions
MAX_READING = 256 << 10  # for whom may only look
UPLOAD, WRITE_FILE = "/sandboxes/upload-file", "/sandboxes/write-file"
_CONSOLE_FILE = re.compile(r"/console/api/sandboxes/[^/]+/file")
ROUTERS = (
    agents.router,
    sandboxes.router,
    commands.router,
    files.router,
    events.router,
    terminals.router,
    tasks.router,
    console.router,
    console_histories.router,  # before those with an id in the place of its names
    console_sandboxes.router,
    console_inside.router,
    console_screen.router,
    repositories.router,
    models.router,
    audit.router,
    console_operation.router,
    console_usage.router,
    webhooks.router,
    browser_sockets.router,
    browsers.router,
    triggers.router,
)


def build_app(deps: Deps) -> FastAPI:
    app = FastAPI(
        title="Sandlot platform",
        version=deps.version,
        description="Sessions on sandboxes of any E2B-compatible provider.",
        docs_url=f"{PREFIX}/docs",
        openapi_url=f"{PREFIX}/openapi.json",
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.deps = deps
    errors.install(app)
    for router in ROUTERS:
        app.include_router(router)
    app.include_router(console.pages)  # last: one of its paths matches all that begins with /console

    @app.get(f"{PREFIX}/health", tags=["health"])
    async def health() -> dict[str, str]:
        """Whether the platform serves."""
        return {"status": "ok", "version": deps.version}

    return app


class Platform:
    """The entry point of the platform. Checks the key before it reads anything else of a request."""

    def __init__(self, deps: Deps, run: Loops, close: Loops) -> None:
        self._app, self._access, self._console = build_app(deps), deps.access, deps.console
        self.deps = deps
        self._git = GitEndpoint(deps)
        self._models = deps.models.gateway.door()
        self._mcp, self._close = McpEndpoint(deps), close
        self._board = McpEndpoint(deps, "sandlot.platform.api.task_tools")
        deps.board.serve = self._board.serve_task
        self._bodies = Bodies()
        self._live = LiveStreams()
        deps.access.on_revoke(self._live.changed)
        deps.console.logins.on_end(self._live.changed)
        self._routing = Routing([*OPEN, MCP, GIT, MODELS, *_paths()])
        self._run = run

    async def run(self) -> None:
        """Its loops, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._run())
            group.create_task(self._live.run())

    async def close(self) -> None:
        """End streams, so that nothing delays a shutdown."""
        await self._mcp.close()
        await self._board.close()
        await self._close()

    def handles(self, scope: Scope) -> bool:
        """Whether a request on a port that is shared with the engine is the platform's."""
        return self._routing.matches(scope) or self._is_home(scope)

    def _is_home(self, scope: Scope) -> bool:
        """A browser at the bare address is sent to the console; everything else there is the engine's."""
        is_get = scope["type"] == "http" and scope["method"] in ("GET", "HEAD") and scope["path"] == "/"
        headers = scope["headers"] if is_get else []
        return is_get and console.wants_page(headers) and self._console.hosts.has(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "http" and scope["path"].startswith(GIT):
            await self._git(scope, receive, send)  # checks the key by itself: git sends it as a password
            return
        if scope["type"] == "http" and scope["path"].startswith(MODELS):
            # Checks the key by itself: clients of models send it in ways of their own.
            await self._models({**scope, "path": scope["path"][len(MODELS) - 1 :]}, receive, send)
            return
        is_websocket = scope["type"] == "websocket"
        check: Check = _always
        try:
            if not _is_open(scope):
                check = self._check(scope)
                scope[CALLER] = await check()
        except PlatformError as error:
            if is_websocket:
                await refuse_websocket(error, scope, receive, send)
            else:
                await errors.answer(error)(scope, receive, send)
            return
        app: ASGIApp = self._app if is_websocket else self._serve
        await self._live.serve(app, scope, receive, send, check)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_file = scope["path"] == UPLOAD or _CONSOLE_FILE.fullmatch(scope["path"]) is not None
        body = self._bodies.bounded(scope, receive, _limit(scope), is_file=is_file or scope["path"] == webhooks.GITHUB)
        if scope["path"] != MCP:
            if CALLER in scope and audit.is_written(scope):
                await audit.audited(self.deps.audit, scope[CALLER], self._app, scope, (body, send))
            else:
                await self._app(scope, body, send)
            return
        try:
            await self._mcp(scope, body, send)
        except HTTPException as error:
            await failure(error.status_code, str(error.detail))(scope, receive, send)

    def _check(self, scope: Scope) -> Callable[[], Awaitable[Caller]]:
        """Finds the caller by key; else by the cookie of a browser, which counts only if the request is the console's own."""
        secret, headers = secret_of(scope), scope["headers"]
        cookie = cookie_of(headers) if secret is None else None
        if cookie is None:
            return partial(self._access.authenticate, secret)
        check_origin(scope, headers, self._console.hosts)
        return partial(self._console.logins.caller, cookie)


async def _always() -> None:
    """Of routes that need no key."""


def _is_open(scope: Scope) -> bool:
    return (
        scope["path"] in OPEN
        or is_signed(scope)
        or (scope["type"] == "http" and console.is_page(scope["path"], scope["method"]))
    )


def _paths() -> list[str]:
    """Of all routes, with parameters in braces."""
    return [
        route.path for router in ROUTERS for route in router.routes if isinstance(route, APIRoute | APIWebSocketRoute)
    ]


def _limit(scope: Scope) -> int:
    """How large a body may be, by route and by what the caller may do."""
    if scope["path"] == webhooks.GITHUB:
        return 2 * MAX_DELIVERY  # the route itself bounds what is kept, and how many at once
    if scope["path"].startswith(f"{WEBDRIVER}/"):
        return MAX_FILE  # the key is in the address
    caller: Caller | None = scope.get(CALLER)
    if caller is None or not ({KeyScope.WRITE, KeyScope.ADMIN} & caller.scopes):
        return MAX_READING
    path = scope["path"]
    if path == UPLOAD:
        return MAX_UPLOAD
    if path.startswith(BROWSERS) and path.endswith(("/uploads", "/extensions")):
        return MAX_BROWSER_FILE
    return MAX_FILE if path in (WRITE_FILE, MCP) or _CONSOLE_FILE.fullmatch(path) else MAX_JSON
