"""The MCP endpoint. It is opened at the first request, because its library takes longer to load than the rest of the server."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from sandlot.platform.api.deps import CALLER, TASK, Deps
from sandlot.platform.core.model import Caller

PATH = "/mcp"


class McpEndpoint:
    """`tools` is the module that builds them."""

    def __init__(self, deps: Deps, tools: str = "sandlot.platform.api.tools") -> None:
        self._deps, self._tools = deps, tools
        self._app: ASGIApp | None = None
        self._turn = asyncio.Lock()
        self._closing = asyncio.Event()
        self._holding: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._turn:
            app = self._app = self._app or await self._open()
        await app(scope, receive, send)

    async def serve_task(self, scope: Scope, receive: Receive, send: Send, caller: Caller, task: str) -> None:
        """For the agent of a task, through its tunnel."""
        scope = {**scope, "path": PATH, "raw_path": PATH.encode(), CALLER: caller, TASK: task}
        await self(scope, receive, send)

    async def close(self) -> None:
        self._closing.set()
        if self._holding is not None:
            await asyncio.gather(self._holding, return_exceptions=True)

    async def _open(self) -> ASGIApp:
        tools: Any = await asyncio.to_thread(importlib.import_module, self._tools)
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
