"""The MCP endpoint. It is opened at the first request, because its library takes longer to load than the rest of the server."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from sandlot.platform.api.deps import Deps

PATH = "/mcp"


class McpEndpoint:
    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._app: ASGIApp | None = None
        self._turn = asyncio.Lock()
        self._closing = asyncio.Event()
        self._holding: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._turn:
            app = self._app = self._app or await self._open()
        await app(scope, receive, send)

    async def close(self) -> None:
        self._closing.set()
        if self._holding is not None:
            await asyncio.gather(self._holding, return_exceptions=True)

    async def _open(self) -> ASGIApp:
        tools: Any = await asyncio.to_thread(importlib.import_module, "sandlot.platform.api.tools")
        app, running = tools.build(self._deps)
        ready = asyncio.Event()

        async def hold() -> None:
            async with running:  # entered and left by one task, as its library demands
                ready.set()
                await self._closing.wait()

        self._holding = asyncio.create_task(hold())
        await ready.wait()
        made: ASGIApp = app
        return made
