"""The MCP tools at `/mcp`. Each acts in the caller's own sandbox, which is created at the first use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import Field
from starlette.types import ASGIApp

from sandlot.platform.api import task_tools
from sandlot.platform.api.deps import Deps
from sandlot.platform.api.tool_callers import asking
from sandlot.platform.core.model import Caller, Scope, Session, SessionStatus
from sandlot.platform.sessions.commands import Command
from sandlot.platform.sessions.service import SessionRequest, SessionTarget

PATH = "/mcp"
MAX_SHOWN = 100_000  # characters
INSTRUCTIONS = """A Linux sandbox of your own: run commands, read and write files, reach its ports. It is made when you first
use it, keeps its files, and is paused while nobody uses it. `session` names another sandbox; leave it out for the usual one."""
SessionName = Annotated[str, Field(description="Which of your sandboxes.", min_length=1, max_length=100)]
Path = Annotated[str, Field(description="In the sandbox.", min_length=1, max_length=4096)]


class ToolContext:
    """What the tools share: finding the caller's sandbox, and turning errors into tool errors."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    @asynccontextmanager
    async def acting(self, context: Context[Any, Any], session: str, scope: Scope) -> AsyncIterator[SessionTarget]:
        with asking(context, scope) as (caller, user_id):
            found = await self._sandbox(caller, user_id, session)
            yield SessionTarget(caller=caller, sandbox_id=found.id, user_id=user_id)

    async def _sandbox(self, caller: Caller, user_id: str, session: str) -> Session:
        request = SessionRequest(user_id=user_id, session_id=f"mcp-{session}")
        found = await self._deps.sessions.create(caller, request, wait_s=60)
        if found.status is not SessionStatus.RUNNING:
            position = await self._deps.sessions.queue_position(found)
            raise ToolError(f"your sandbox is {found.status.value}: {position.reason if position else 'try again'}")
        return found


def build(deps: Deps) -> tuple[ASGIApp, AbstractAsyncContextManager[None]]:
    """The application, and what has to be open while it serves."""
    server = MCPServer(
        "sandlot", instructions=f"{INSTRUCTIONS}\n{task_tools.INSTRUCTIONS}", version=deps.version, log_level="WARNING"
    )
    tools = ToolContext(deps)
    _add_commands(server, deps, tools)
    _add_files(server, deps, tools)
    _add_sandbox(server, deps, tools)
    task_tools.add_tasks(server, deps)
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        json_response=True,
        # The caller's key protects this endpoint; a browser sends none by itself.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    return app, server.session_manager.run()


def _add_commands(server: MCPServer[Any], deps: Deps, tools: ToolContext) -> None:
    @server.tool()
    async def run_command(
        context: Context[Any, Any],
        command: Annotated[str, Field(description="For bash.", min_length=1, max_length=1 << 20)],
        cwd: str | None = None,
        timeout: Annotated[float, Field(gt=0, le=3600, description="Seconds until it is ended.")] = 120.0,
        background: Annotated[bool, Field(description="Do not wait for its end.")] = False,
        session: SessionName = "default",
    ) -> dict[str, Any]:
        """Run a command in the sandbox."""
        async with tools.acting(context, session, Scope.WRITE) as target:
            wanted = Command(command=command, cwd=cwd, timeout_s=timeout)
            if background:
                started = await deps.commands.background(target, wanted)
                return {"pid": started.pid}
            outcome = await deps.commands.run(target, wanted)
            shown = {"exit_code": outcome.exit_code, "stdout": _cut(outcome.stdout), "stderr": _cut(outcome.stderr)}
            return {**shown, "timed_out": True} if outcome.timed_out else shown


def _add_files(server: MCPServer[Any], deps: Deps, tools: ToolContext) -> None:
    # Text stays text: as structured output a model would get it as JSON, with every line end escaped.
    @server.tool(structured_output=False)
    async def read_file(context: Context[Any, Any], path: Path, session: SessionName = "default") -> str:
        """Read a text file of the sandbox."""
        async with tools.acting(context, session, Scope.READ) as target:
            return _cut((await deps.files.read(target, path)).decode("utf-8", "replace"))

    @server.tool(structured_output=False)
    async def write_file(context: Context[Any, Any], path: Path, content: str, session: SessionName = "default") -> str:
        """Write a text file of the sandbox whole, with the directories above it."""
        async with tools.acting(context, session, Scope.WRITE) as target:
            return f"{await deps.files.write(target, path, content.encode())} bytes written to {path}"

    @server.tool(structured_output=False)
    async def edit_file(
        context: Context[Any, Any], path: Path, old: str, new: str, session: SessionName = "default"
    ) -> str:
        """Replace a text that occurs exactly once in a file of the sandbox."""
        async with tools.acting(context, session, Scope.WRITE) as target:
            before = (await deps.files.read(target, path)).decode("utf-8", "surrogateescape")
            if not old or (count := before.count(old)) != 1:
                raise ToolError(f"{path}: the old text must occur exactly once; it occurs {count if old else 0} times")
            after = before.replace(old, new).encode("utf-8", "surrogateescape")
            await deps.files.write(target, path, after)
            return f"{path} changed"


def _add_sandbox(server: MCPServer[Any], deps: Deps, tools: ToolContext) -> None:
    @server.tool(structured_output=False)
    async def expose_port(
        context: Context[Any, Any], port: Annotated[int, Field(ge=1, le=65535)], session: SessionName = "default"
    ) -> str:
        """The address at which a port of the sandbox is reached from outside."""
        async with tools.acting(context, session, Scope.WRITE) as target, deps.sessions.using(target) as handle:
            return handle.box.url(port)

    @server.tool(structured_output=False)
    async def delete_sandbox(context: Context[Any, Any], session: SessionName = "default") -> str:
        """End the sandbox for good, with its files."""
        async with tools.acting(context, session, Scope.WRITE) as target:
            await deps.sessions.delete(target)
            return "deleted"


def _cut(text: str) -> str:
    if len(text) <= MAX_SHOWN:
        return text
    half = MAX_SHOWN // 2
    return f"{text[:half]}\n… {len(text) - MAX_SHOWN} characters left out …\n{text[-half:]}"
