"""The console's routes into a sandbox: files, ports, and a terminal over a WebSocket that can be taken up again."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import PurePosixPath
from typing import Annotated, cast
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as PathParameter
from pydantic import Field
from starlette.websockets import WebSocket

from sandlot.platform.api import websockets
from sandlot.platform.api.console import API
from sandlot.platform.api.console_responses import (
    ConsoleEntry,
    ConsoleEntryList,
    ConsolePort,
    ConsolePortGrant,
    ConsolePortList,
)
from sandlot.platform.api.deps import CALLER, Deps, Given, Reader, Writer
from sandlot.platform.api.errors import PROBLEMS
from sandlot.platform.api.requests import Body, Path
from sandlot.platform.api.responses import FileWritten
from sandlot.platform.api.streams import Stream
from sandlot.platform.api.terminals import TerminalClient, TerminalQuery, carry, terminal_query
from sandlot.platform.console.ports import listening_ports
from sandlot.platform.core.errors import PlatformError
from sandlot.platform.core.model import Caller, Scope, TerminalSize
from sandlot.platform.core.ports import Box, Terminal
from sandlot.platform.identity.keys import require

router = APIRouter(prefix=f"{API}/sandboxes/{{sandbox_id}}", tags=["console"], responses=PROBLEMS)
MAX_READ = 1 << 30
FilePath = Annotated[Path, Query(description="In the sandbox.")]
Bytes = Annotated[int, Query(ge=1, le=MAX_READ, description="Most bytes to read; the rest is left out.")]
_RAW = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


class MakeDirectory(Body):
    path: Path


class ConsoleTerminalQuery(TerminalQuery):
    pid: Annotated[int, Field(ge=2, le=2**31)] | None = None  # of a shell that is open already


@router.get("/files")
async def entries(sandbox_id: str, path: FilePath, deps: Given, caller: Reader) -> ConsoleEntryList:
    """What is in a directory of the sandbox."""
    async with deps.console.sandboxes.using(caller, sandbox_id) as box:
        return ConsoleEntryList(entries=[ConsoleEntry.of(entry) for entry in await box.files.entries(path)])


@router.get("/file", response_class=Response, responses={200: {"content": {"application/octet-stream": {}}}})
async def read_file(sandbox_id: str, path: FilePath, deps: Given, caller: Reader, limit: Bytes = MAX_READ) -> Response:
    """A file's bytes. Always a download: nothing of a sandbox is ever shown as a page of this origin."""
    pieces = _pieces(deps, caller, sandbox_id, path, limit)
    await anext(pieces)  # raises while a plain failure can still be answered
    name = quote(PurePosixPath(path).name or "file", safe="")
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{name}",
        "content-security-policy": "sandbox; default-src 'none'",
        "x-content-type-options": "nosniff",
    }
    return Stream(pieces, "application/octet-stream", headers)


async def _pieces(deps: Deps, caller: Caller, sandbox_id: str, path: str, limit: int) -> AsyncGenerator[bytes]:
    async with deps.console.sandboxes.using(caller, sandbox_id) as box:
        await box.files.size(path)
        yield b""
        async with contextlib.aclosing(cast(AsyncGenerator[bytes], box.files.read(path))) as pieces:
            async for piece in pieces:
                yield piece[:limit]
                limit -= len(piece)
                if limit <= 0:
                    return


@router.put("/file", openapi_extra=_RAW)
async def write_file(sandbox_id: str, path: FilePath, request: Request, deps: Given, caller: Writer) -> FileWritten:
    """Write a file whole, with the directories above it. The body is its content."""
    content = await request.body()
    async with deps.console.sandboxes.using(caller, sandbox_id) as box:
        await box.files.write(path, content)
    return FileWritten(path=path, size=len(content))


@router.delete("/file", status_code=204)
async def remove_file(sandbox_id: str, path: FilePath, deps: Given, caller: Writer) -> None:
    """Remove a file, or a directory with all that is in it."""
    async with deps.console.sandboxes.using(caller, sandbox_id) as box:
        await box.files.remove(path)


@router.post("/mkdir", status_code=204)
async def make_directory(sandbox_id: str, body: MakeDirectory, deps: Given, caller: Writer) -> None:
    """Make a directory, with those above it."""
    async with deps.console.sandboxes.using(caller, sandbox_id) as box:
        await box.files.make_dir(body.path)


@router.get("/ports")
async def ports(sandbox_id: str, deps: Given, caller: Reader) -> ConsolePortList:
    """Ports of the sandbox that something listens on, and where others reach them."""
    async with deps.console.sandboxes.using(caller, sandbox_id) as box:
        found = await listening_ports(box)
        return ConsolePortList(ports=[ConsolePort(port=port, url=box.url(port)) for port in found])


@router.post("/ports/{port}/grant")
async def grant_port(
    sandbox_id: str, port: Annotated[int, PathParameter(ge=1, le=65535)], deps: Given, caller: Writer
) -> ConsolePortGrant:
    """Where a browser gets into a port. A protected port's address works once, soon, and leaves a cookie for that port alone."""
    found = await deps.console.sandboxes.port_address(caller, sandbox_id, port)
    return ConsolePortGrant(url=found.url, one_time=found.ends_at is not None, expires_at=found.ends_at)


@router.websocket("/terminal")
async def terminal(websocket: WebSocket, sandbox_id: str) -> None:
    """A shell in the sandbox. It goes on when the connection ends: `?pid=` takes it up again."""
    deps, caller = cast(Deps, websocket.app.state.deps), cast(Caller, websocket.scope[CALLER])
    client = TerminalClient(websocket)
    try:
        require(caller, Scope.WRITE)
        query = terminal_query(websocket, ConsoleTerminalQuery)
        async with deps.console.sandboxes.using(caller, sandbox_id) as box, _opened(box, query, client) as opened:
            await client.accept({"type": "open", "pid": opened.pid})
            await carry(client, opened, exit_name="code")
    except PlatformError as error:
        if client.is_accepted:
            await client.close(websockets.FAILED, str(error))
        else:
            await websockets.refuse_websocket(error, websocket.scope, websocket.receive, websocket.send)


@contextlib.asynccontextmanager
async def _opened(box: Box, query: ConsoleTerminalQuery, client: TerminalClient) -> AsyncIterator[Terminal]:
    size = TerminalSize(query.cols, query.rows)
    if query.pid is not None:
        opened = await box.terminals.attach(query.pid, client.send)
    else:
        opened = await box.terminals.open(size, cwd=query.cwd, envs={}, user=query.user, on_data=client.send)
    try:
        if query.pid is not None:
            await opened.resize(size)
        yield opened
    finally:
        await opened.detach()
