"""The user's own MCP servers through ours: started when first needed, what they offer under their names, each failing alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from fastmcp.prompts import Prompt
from fastmcp.resources import Resource, ResourceTemplate
from fastmcp.server.providers import Provider
from fastmcp.tools import Tool

from tools import offers
from tools.configuration import Misconfigured, Plan, read
from tools.connections import LIST_S, START_S, Connection
from tools.workspace import Workspace

T = TypeVar("T")


class Proxies(Provider):
    def __init__(self, workspace: Workspace, config: Path) -> None:
        super().__init__()
        self._workspace, self._config = workspace, config
        self._connections: dict[str, Connection] = {}
        self._problems: dict[str, str] = {}
        self._problem: str | None = None
        self._turn = asyncio.Lock()

    def tools(self) -> Sequence[Any]:
        return (self.mcp_servers,)

    async def mcp_servers(self, restart: str | None = None) -> dict[str, Any]:
        """The MCP servers of .mcp.json: which work, which failed and why. `restart` names one to start anew."""
        if restart is not None and restart in self._connections:
            async with self._turn:
                await self._connections.pop(restart).close()
        await self._settle()
        servers = [self._shown(one) for one in self._connections.values()]
        servers += [{"server": name, "state": "failed", "problem": problem} for name, problem in self._problems.items()]
        answer: dict[str, Any] = {"config": str(self._config), "servers": servers}
        return {**answer, "problem": self._problem} if self._problem else answer

    async def _list_tools(self) -> Sequence[Tool]:
        await self._settle()
        return [tool for one in self._ready() for tool in offers.tools(one)]

    async def _get_tool(self, name: str, version: Any = None) -> Tool | None:
        for one in await self._owners(name, offers.prefix):
            if found := offers.tool(one, name):
                return found
        return None

    async def _list_prompts(self) -> Sequence[Prompt]:
        return await self._all(offers.prompts)

    async def _get_prompt(self, name: str, version: Any = None) -> Prompt | None:
        return next((offers.prompt(one, name) for one in await self._owners(name, offers.prefix)), None)

    async def _list_resources(self) -> Sequence[Resource]:
        return await self._all(offers.resources)

    async def _get_resource(self, uri: str, version: Any = None) -> Resource | None:
        return next((offers.resource(one, uri) for one in await self._owners(uri, offers.scheme)), None)

    async def _list_resource_templates(self) -> Sequence[ResourceTemplate]:
        return await self._all(offers.templates)

    async def _get_resource_template(self, uri: str, version: Any = None) -> ResourceTemplate | None:
        return None  # what one could stand for is a resource already

    async def _all(self, kind: Callable[[Connection], Awaitable[Sequence[T]]]) -> Sequence[T]:
        """What all servers that work have of a kind, as it is now."""
        await self._settle()
        return [each for some in await asyncio.gather(*map(kind, self._ready())) for each in some]

    def _ready(self) -> Sequence[Connection]:
        return [one for one in self._connections.values() if one.state == "ready"]

    async def _owners(self, name: str, beginning: Callable[[str], str]) -> Sequence[Connection]:
        """The servers that something of this name may belong to, the likeliest first, once they work or have failed."""
        if offers.SEPARATOR not in name and "+" not in name:
            return ()
        async with self._turn:
            await self._follow()
        found = [one for one in self._connections.values() if name.startswith(beginning(one.plan.name))]
        for one in found:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(one.settled.wait(), START_S)
        return sorted(found, key=lambda one: len(one.plan.name), reverse=True)

    async def get_tasks(self) -> Sequence[Any]:
        """None; asked for while the server starts, when no other server should have to."""
        return ()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        yield
        await asyncio.gather(*(one.close() for one in self._connections.values()))

    async def _settle(self) -> None:
        """Have the servers of the file, as it is now; wait a little for those that are starting."""
        async with self._turn:
            await self._follow()
        starting = [asyncio.ensure_future(one.settled.wait()) for one in self._connections.values()]
        if starting:
            await asyncio.wait(starting, timeout=LIST_S)
        for waiting in starting:
            waiting.cancel()

    async def _follow(self) -> None:
        try:
            wanted = read(self._config, self._workspace.environment())
            self._problem = None
        except Misconfigured as error:
            wanted, self._problem = {}, str(error)
        self._problems = {name: plan for name, plan in wanted.items() if isinstance(plan, str)}
        plans = {name: plan for name, plan in wanted.items() if isinstance(plan, Plan)}
        for name, one in list(self._connections.items()):
            if plans.get(name) != one.plan or one.is_due:
                del self._connections[name]
                await one.close()
        for name, plan in plans.items():
            if name not in self._connections:
                log = self._workspace.state / "mcp" / f"{name}.log"
                self._connections[name] = Connection(plan, self._workspace, log)

    @staticmethod
    def _shown(one: Connection) -> dict[str, Any]:
        shown: dict[str, Any] = {"server": one.plan.name, "type": one.plan.kind, "state": one.state}
        if one.state == "ready":
            return {**shown, "tools": [tool.name for tool in offers.tools(one)]}
        words = one.last_words() if one.plan.kind == "stdio" else ""
        shown["problem"] = one.problem
        return {**shown, "stderr": words} if words else shown
