"""The WebSocket of terminals: binary frames both ways, JSON text frames for the size and the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Annotated, Literal, TypeVar, cast

from fastapi import APIRouter
from pydantic import BaseModel, Field, ValidationError
from starlette.websockets import WebSocket

from sandlot.platform.api import websockets
from sandlot.platform.api.credentials import chosen_subprotocol
from sandlot.platform.api.deps import CALLER, Deps
from sandlot.platform.api.requests import Identifier, Path
from sandlot.platform.core.errors import InvalidRequest, NotFound, PlatformError, TooLarge
from sandlot.platform.core.model import Caller, Scope, TerminalSize
from sandlot.platform.core.ports import Terminal
from sandlot.platform.identity.keys import require
from sandlot.platform.sessions.service import SessionTarget
from sandlot.platform.sessions.terminals import TerminalSpec
from sandlot.server.failures import describe

router = APIRouter(prefix="/sandboxes")
MAX_INPUT = 1 << 20  # bytes in one frame
SEND_S = 60.0  # for a client that reads nothing
Query = TypeVar("Query", bound=BaseModel)
Extent = Annotated[int, Field(ge=1, le=1000)]


class TerminalQuery(BaseModel):
    cols: Extent = 80
    rows: Extent = 24
    cwd: Path | None = None
    user: Identifier | None = None
    user_id: Identifier | None = None


class ResizeFrame(BaseModel):
    type: Literal["resize"]
    cols: Extent
    rows: Extent


@router.websocket("/sbx_{name}/terminal")
async def terminal(websocket: WebSocket, name: str) -> None:
    """A shell in the sandbox. It ends with the connection, and the connection with it."""
    deps, caller = cast(Deps, websocket.app.state.deps), cast(Caller, websocket.scope[CALLER])
    client = TerminalClient(websocket)
    try:
        require(caller, Scope.WRITE)
        query = terminal_query(websocket, TerminalQuery)
        target = SessionTarget(caller=caller, sandbox_id=f"sbx_{name}", user_id=query.user_id)
        spec = TerminalSpec(size=TerminalSize(query.cols, query.rows), cwd=query.cwd, user=query.user)
        async with deps.terminals.open(target, spec, client.send) as opened:
            await client.accept()
            await carry(client, opened)
    except PlatformError as error:
        if client.is_accepted:
            await client.close(websockets.FAILED, str(error))
        else:
            await websockets.refuse_websocket(error, websocket.scope, websocket.receive, websocket.send)


class TerminalClient:
    """The other side of the connection. Output waits until the handshake is done; a client that reads nothing is left."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        self._accepted = asyncio.Event()
        self.left = asyncio.Event()

    @property
    def is_accepted(self) -> bool:
        return self._accepted.is_set()

    async def accept(self, first: dict[str, object] | None = None) -> None:
        """`first` comes before any output."""
        await self._websocket.accept(subprotocol=chosen_subprotocol(self._websocket.scope))
        if first is not None:
            await self._websocket.send_text(json.dumps(first))
        self._accepted.set()

    async def send(self, data: bytes) -> None:
        await self._accepted.wait()
        if not self.left.is_set():
            try:
                async with asyncio.timeout(SEND_S):
                    await self._websocket.send_bytes(data)
            except Exception:  # disconnected in one of many ways, or too slow
                self.left.set()

    async def close(self, code: int, reason: str, last: dict[str, object] | None = None) -> None:
        with contextlib.suppress(Exception):  # it may be gone
            async with asyncio.timeout(SEND_S):
                if last is not None:
                    await self._websocket.send_text(json.dumps(last))
                await self._websocket.close(code, websockets.reason(reason))

    async def read_into(self, opened: Terminal) -> None:
        """Until it leaves. Raises `InvalidRequest`, `TooLarge`."""
        while (message := await self._websocket.receive())["type"] != "websocket.disconnect":
            data: bytes | None = message.get("bytes")
            with contextlib.suppress(NotFound):  # the shell has just ended, which is told elsewhere
                if data is None:
                    await opened.resize(_size(message["text"]))
                elif len(data) > MAX_INPUT:
                    raise TooLarge(f"a frame is larger than the {MAX_INPUT >> 20} MiB that a terminal takes")
                else:
                    await opened.write(data)
        self.left.set()


async def carry(client: TerminalClient, opened: Terminal, exit_name: str = "exit_code") -> None:
    """Carry bytes until either side ends, and tell the client why."""
    ending, reading = asyncio.ensure_future(opened.wait()), asyncio.ensure_future(client.read_into(opened))
    leaving = asyncio.ensure_future(client.left.wait())
    tasks = (ending, reading, leaving)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            code = ending.result()
            await client.close(websockets.NORMAL, f"exit code {code}", {"type": "exit", exit_name: code})
        elif reading.done() and (error := reading.exception()):
            if not isinstance(error, InvalidRequest | TooLarge):
                raise error
            too_big = isinstance(error, TooLarge)
            await client.close(websockets.TOO_BIG if too_big else websockets.POLICY, str(error))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def terminal_query(websocket: WebSocket, kind: type[Query]) -> Query:
    try:
        return kind.model_validate(dict(websocket.query_params))
    except ValidationError as error:
        raise InvalidRequest(f"the request is not valid: {describe(error.errors())}") from None


def _size(text: str) -> TerminalSize:
    try:
        frame = ResizeFrame.model_validate_json(text)
    except ValidationError:
        raise InvalidRequest(
            'text frames must be {"type": "resize", "cols": …, "rows": …}; send input as bytes'
        ) from None
    return TerminalSize(frame.cols, frame.rows)
