"""One of the user's own MCP servers: started, held open, asked, and told about when it fails."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fastmcp import Client
from fastmcp.client.transports import SSETransport, StdioTransport, StreamableHttpTransport
from fastmcp.exceptions import FastMCPError
from mcp.shared.exceptions import MCPError

from tools.configuration import Plan
from tools.texts import cut, plain
from tools.workspace import Workspace

T = TypeVar("T")
START_S = 120.0  # a server may have to be downloaded first
LIST_S = 10.0  # how long a list waits for a server
CALL_S = 1800.0
RETRY_S = 10.0
STOP_S = 5.0
MOST_LISTED = 500
MOST_LOG = 1 << 20


class Connection:
    """One server: a task that holds its client open, and what became of it."""

    def __init__(self, plan: Plan, workspace: Workspace, log: Path) -> None:
        self.plan, self._workspace, self._log = plan, workspace, log
        self.state, self.problem = "starting", ""
        self.tools: Sequence[Any] = ()  # as it describes them
        self._client: Any = None
        self._stop, self.settled = asyncio.Event(), asyncio.Event()
        self._started_at = time.monotonic()
        # Nothing of the request that happens to come first may stick to it, least of all its headers.
        self._task = asyncio.create_task(self._hold(), context=contextvars.Context())

    @property
    def is_due(self) -> bool:
        """Whether it failed, and was not started just now: one that cannot start is not tried at every call."""
        return self.state == "failed" and time.monotonic() - self._started_at > RETRY_S

    async def close(self) -> None:
        self._stop.set()
        done, _ = await asyncio.wait((self._task,), timeout=STOP_S)
        if not done:
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=STOP_S)

    async def ask(self, asking: Callable[[Any], Awaitable[T]], failure: type[FastMCPError]) -> T:
        """What its client gets from it. Raises `failure` with words for the caller."""
        if self.state != "ready":
            raise failure(f"the MCP server {self.plan.name!r} is not ready ({self.state}): {self.problem}")
        try:
            return await asyncio.wait_for(asking(self._client), CALL_S)
        except MCPError as error:
            await self._check()
            raise failure(f"{self.plan.name}: {error}") from error
        except (OSError, RuntimeError, TimeoutError) as error:
            await self._check()
            raise failure(f"{self.plan.name} did not answer: {_words(error)}") from error

    async def listed(self, listing: Callable[[Any], Awaitable[Sequence[T]]]) -> Sequence[T]:
        """What it has of one kind: nothing if it does not know that kind, or does not say in time."""
        if self.state != "ready":
            return ()
        try:
            return (await asyncio.wait_for(listing(self._client), LIST_S))[:MOST_LISTED]
        except (MCPError, OSError, RuntimeError, TimeoutError):
            return ()

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
                self.tools = found[:MOST_LISTED]
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


def _words(error: BaseException) -> str:
    """The first cause that says something: libraries wrap errors in groups and in errors of their own."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return cut(str(error) or type(error).__name__, 1000)
