"""The user's own MCP servers through ours: started when first needed, their tools under the server's name, each failing alone."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import SSETransport, StdioTransport, StreamableHttpTransport
from fastmcp.exceptions import ToolError
from fastmcp.server.dependencies import get_context
from fastmcp.server.providers import Provider
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from mcp.shared.exceptions import MCPError
from pydantic import PrivateAttr

from tools.configuration import Misconfigured, Plan, read
from tools.texts import cut, plain
from tools.workspace import Workspace

START_S = 120.0  # a server may have to be downloaded first
LIST_S = 10.0  # how long a list of tools waits for servers that are still starting
CALL_S = 1800.0
RETRY_S = 10.0
STOP_S = 5.0
MOST_TOOLS = 500
MOST_TEXT = 200_000
MOST_BINARY = 16 << 20  # characters of base64
MOST_LOG = 1 << 20
SEPARATOR = "__"  # no tool of ours has it in its name


class Connection:
    """One server: a task that holds its client open, and what became of it."""

    def __init__(self, plan: Plan, workspace: Workspace, log: Path) -> None:
        self.plan, self._workspace, self._log = plan, workspace, log
        self.state, self.problem = "starting", ""
        self.tools: Sequence[ProxiedTool] = ()
        self._client: Any = None
        self._stop, self.settled = asyncio.Event(), asyncio.Event()
        self._started_at = time.monotonic()
        # Nothing of the request that happens to come first may stick to it, least of all its headers.
        self._task = asyncio.create_task(self._hold(), context=contextvars.Context())

    @property
    def is_due(self) -> bool:
        """Whether it failed, and was not started just now: one that cannot start is not tried at every call."""
        return self.state == "failed" and time.monotonic() - self._started_at > RETRY_S

    def tool(self, name: str) -> ProxiedTool | None:
        """By its full name. While the server is not there, any name will do: the call tells what is wrong with it."""
        if self.state != "ready":
            return ProxiedTool(name=name, parameters={"type": "object"}).of(self, name)
        return next((tool for tool in self.tools if tool.name == name), None)

    async def close(self) -> None:
        self._stop.set()
        done, _ = await asyncio.wait((self._task,), timeout=STOP_S)
        if not done:
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=STOP_S)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        if self.state != "ready":
            raise ToolError(f"the MCP server {self.plan.name!r} is not ready ({self.state}): {self.problem}")
        try:
            answer = await self._client.call_tool_mcp(
                tool, dict(arguments), timeout=CALL_S, progress_handler=_passing_on()
            )
        except MCPError as error:
            await self._check()
            raise ToolError(f"{self.plan.name}: {error}") from error
        except (OSError, RuntimeError, TimeoutError) as error:
            await self._check()
            raise ToolError(f"{self.plan.name} did not answer: {_words(error)}") from error
        return ToolResult(
            content=[_bounded(part) for part in answer.content],
            structured_content=_bounded_json(answer.structured_content),
            is_error=bool(answer.is_error),
        )

    async def _check(self) -> None:
        """A call failed: is the server still there?"""
        try:
            await asyncio.wait_for(self._client.list_tools_mcp(), 5)
        except Exception as error:
            self._fail(f"it ended: {_words(error)}")
            self._stop.set()

    async def _hold(self) -> None:
        try:
            async with asyncio.timeout(START_S) as limit, Client(self._transport(), init_timeout=START_S) as client:
                found = await client.list_tools()
                limit.reschedule(None)
                self._client = client
                self.tools = [_proxied(tool, self) for tool in found[:MOST_TOOLS]]
                self.state, self.problem = "ready", ""
                self.settled.set()
                await self._stop.wait()
        except TimeoutError:
            self._fail(f"it did not start within {START_S:.0f} s")
        except Exception as error:
            self._fail(_words(error))
        finally:
            if self.state == "ready":
                self.state = "stopped"
            self.settled.set()

    def _fail(self, problem: str) -> None:
        if self.state != "failed":
            self.state, self.problem = "failed", problem

    def _transport(self) -> Any:
        plan = self.plan
        if plan.kind == "http":
            return StreamableHttpTransport(plan.url, headers=dict(plan.headers))
        if plan.kind == "sse":
            return SSETransport(plan.url, headers=dict(plan.headers))
        self._log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._log.write_bytes(b"")
        return StdioTransport(
            command=plan.command,
            args=list(plan.args),
            env={**self._workspace.environment(), **plan.env},
            cwd=plan.cwd or str(self._workspace.home),
            keep_alive=False,
            log_file=self._log,
        )

    def last_words(self) -> str:
        """What a server that was started here wrote to its standard error, in the end."""
        try:
            with self._log.open("r+b") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - 2000))
                text = file.read().decode("utf-8", "replace")
                if size > MOST_LOG:  # it appends, so it goes on at the beginning
                    file.truncate(0)
        except OSError:
            return ""
        return plain(text).strip()


class ProxiedTool(Tool):
    """A tool of another server, under a name that says whose."""

    _connection: Connection = PrivateAttr()
    _remote: str = PrivateAttr()

    def of(self, connection: Connection, remote: str) -> ProxiedTool:
        self._connection, self._remote = connection, remote
        return self

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        return await self._connection.call(self._remote, arguments)


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
        return [tool for one in self._connections.values() if one.state == "ready" for tool in one.tools]

    async def _get_tool(self, name: str, version: Any = None) -> Tool | None:
        if SEPARATOR not in name:
            return None
        async with self._turn:
            await self._follow()
        for one in list(self._connections.values()):
            if name.startswith(f"{one.plan.name}{SEPARATOR}"):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(one.settled.wait(), START_S)
                if found := one.tool(name):
                    return found
        return None

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
            return {**shown, "tools": [tool.name for tool in one.tools]}
        words = one.last_words() if one.plan.kind == "stdio" else ""
        shown["problem"] = one.problem
        return {**shown, "stderr": words} if words else shown


def _proxied(tool: Any, connection: Connection) -> ProxiedTool:
    return ProxiedTool(
        name=f"{connection.plan.name}{SEPARATOR}{tool.name}",
        title=tool.title,
        description=cut(tool.description or "", 20_000),
        parameters=tool.input_schema,
        annotations=tool.annotations,
    ).of(connection, tool.name)


def _passing_on() -> Any:
    """Progress of the other server is progress of the caller's own call."""
    context, here = get_context(), contextvars.copy_context()

    async def report(progress: float, total: float | None, message: str | None) -> None:
        with contextlib.suppress(Exception):  # the caller may have gone, and need not care
            await asyncio.create_task(context.report_progress(progress, total, message), context=here)

    return report


def _bounded(part: Any) -> Any:
    if getattr(part, "type", "") == "text":
        return part.model_copy(update={"text": cut(part.text, MOST_TEXT)})
    data = getattr(part, "data", None) or getattr(getattr(part, "resource", None), "blob", None) or ""
    text = getattr(getattr(part, "resource", None), "text", None) or ""
    if len(data) > MOST_BINARY or len(text) > MOST_TEXT:
        raise ToolError("the answer of the MCP server is too large to pass on")
    return part


def _bounded_json(value: dict[str, Any] | None) -> dict[str, Any] | None:
    return value if value is None or len(json.dumps(value, default=str)) <= MOST_TEXT else None


def _words(error: BaseException) -> str:
    """The first cause that says something: libraries wrap errors in groups and in errors of their own."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return cut(str(error) or type(error).__name__, 1000)
