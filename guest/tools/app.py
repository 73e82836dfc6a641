"""The server: all tools behind one door that asks for the sandbox's token."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastmcp import FastMCP
from fastmcp.tools import Tool

from tools import VERSION
from tools.admission import Admission, Refused
from tools.agents import Agents
from tools.browser import Browser
from tools.chromium import Chromium
from tools.commands import Commands
from tools.desktop import Desktop
from tools.files import Files
from tools.ports import Ports
from tools.proxies import Proxies
from tools.screen import PATH as SCREEN
from tools.screen import Screen
from tools.searching import Searching
from tools.terminals import Terminals
from tools.todo import Todo
from tools.workspace import Workspace

PORT = 6060
PATH = "/mcp"
MOST_BODY = 32 << 20
log = logging.getLogger(__name__)

INSTRUCTIONS = """A Linux sandbox of your own. Read and change files, run commands, keep programs running in the background
(shell_*), use a browser (browser_*) and, where there is a screen, the desktop (desktop_*), make ports reachable (expose_port), keep a list of what is to do (todo_*).
Relative paths begin at the home directory. Long output is cut in the middle."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def build(workspace: Workspace, config: Path) -> Door:
    terminals, proxies = Terminals(workspace), Proxies(workspace, config)
    chromium = Chromium(workspace.state / "browser")

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        yield
        await asyncio.gather(terminals.close(), chromium.close())

    server = FastMCP("sandbox", instructions=INSTRUCTIONS, version=VERSION, lifespan=lifespan)
    plain = (Files(workspace), Searching(workspace), Commands(workspace), Ports(workspace), Todo(workspace))
    topics: tuple[Any, ...] = (*plain, terminals, Browser(chromium), proxies)
    for topic in topics:
        for function in topic.tools():
            server.add_tool(Tool.from_function(function, output_schema=None))
    for provider in (Agents(workspace), Desktop(workspace), proxies):
        server.add_provider(provider)
    app = server.http_app(
        path=PATH,
        stateless_http=True,  # a sandbox may be paused, forked and moved between two calls
        host_origin_protection=False,  # the token protects this door; a browser has none to send by itself
    )
    return Door(app, workspace.admission, Screen(workspace))


class Door:
    """Looks at the token before it reads anything else of a request."""

    def __init__(self, app: Any, admission: Admission, screen: Screen) -> None:
        self._app, self._admission, self._screen = app, admission, screen
        self._inside, self._left_at = 0, time.monotonic()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket" and scope["path"] == SCREEN:
            await self._screen(_bearer(scope), receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["path"] == "/health":
            idle_s = 0.0 if self._inside else time.monotonic() - self._left_at
            await _answer(send, 200, {"status": "ok", "version": VERSION, "idle_s": round(idle_s, 1)})
        elif scope["path"] != PATH:
            await _answer(send, 404, {"error": f"the tools are at {PATH}"})
        else:
            await self._admitted(scope, receive, send)

    async def _admitted(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            self._admission.check(_bearer(scope))
        except Refused as refused:
            await _answer(send, 401, {"error": str(refused)}, ((b"www-authenticate", b'Bearer realm="sandbox tools"'),))
            return
        if _length(scope) > MOST_BODY:
            await _answer(send, 413, {"error": f"a request is at most {MOST_BODY >> 20} MiB"})
            return
        with self._counted(scope["method"]):
            await self._app(scope, _bounded(receive), send)

    @contextmanager
    def _counted(self, method: str) -> Iterator[None]:
        """A call is a use for as long as it takes; somebody who only listens for news is none."""
        if method != "POST":
            yield
            return
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            self._left_at = time.monotonic()


async def serve(workspace: Workspace, config: Path, host: str, port: int) -> None:
    listening = uvicorn.Config(
        build(workspace, config),
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=3,
        ws_max_size=1 << 20,
        ws_per_message_deflate=False,
    )
    server = _Announcing(listening)
    await server.serve()


class _Announcing(uvicorn.Server):
    """Says where it listens, once it does: port 0 picks a free one."""

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            port = self.servers[0].sockets[0].getsockname()[1]
            print(f"listening on {self.config.host} port {port}", flush=True)


def _bearer(scope: Message) -> str | None:
    for name, value in scope["headers"]:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return str(value[7:].decode("latin-1").strip())
    return None


def _length(scope: Message) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


def _bounded(receive: Receive) -> Receive:
    """A body without a length is cut off where it becomes too large."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > MOST_BODY:
            return {"type": "http.disconnect"}
        return message

    return counted


async def _answer(send: Send, status: int, body: object, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    content = json.dumps(body).encode()
    plain = ((b"content-type", b"application/json"), (b"content-length", str(len(content)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": [*plain, *headers]})
    await send({"type": "http.response.body", "body": content})


def workspace_at(home: Path, state: Path, identity: Path) -> Workspace:
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Workspace(home=home, state=state, admission=Admission(state, identity))
