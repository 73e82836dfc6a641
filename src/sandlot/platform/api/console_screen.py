"""The console's WebSocket to the screen of a sandbox: VNC both ways, for looking unless control is asked for."""

from __future__ import annotations

import asyncio
import contextlib
from typing import cast

import aiohttp
from fastapi import APIRouter
from pydantic import BaseModel
from starlette.websockets import WebSocket

from sandlot.platform.api import websockets
from sandlot.platform.api.console import API
from sandlot.platform.api.credentials import chosen_subprotocol
from sandlot.platform.api.deps import CALLER, Deps
from sandlot.platform.api.terminals import terminal_query
from sandlot.platform.console.screens import MAX_FRAME, open_screen
from sandlot.platform.core.errors import PlatformError
from sandlot.platform.core.model import Caller, Scope
from sandlot.platform.identity.keys import require

router = APIRouter(prefix=f"{API}/sandboxes/{{sandbox_id}}", tags=["console"])
SEND_S = 60.0  # for a client that reads nothing


class ScreenQuery(BaseModel):
    control: bool = False


@router.websocket("/screen")
async def screen(websocket: WebSocket, sandbox_id: str) -> None:
    """The sandbox's desktop. `?control=true` lets the caller use mouse and keyboard, if its key may write.

    A refusal closes an accepted connection, with the reason: browsers show nothing of a refused handshake.
    """
    deps, caller = cast(Deps, websocket.app.state.deps), cast(Caller, websocket.scope[CALLER])
    await websocket.accept(subprotocol=chosen_subprotocol(websocket.scope))
    try:
        query = terminal_query(websocket, ScreenQuery)
        require(caller, Scope.WRITE if query.control else Scope.READ)
        async with (
            deps.console.sandboxes.using(caller, sandbox_id) as box,
            open_screen(box, control=query.control) as inside,
        ):
            await _carry(websocket, inside)
        await _close(websocket, websockets.NORMAL, "the screen was closed")
    except PlatformError as error:
        await _close(websocket, websockets.POLICY, str(error))


async def _carry(websocket: WebSocket, inside: aiohttp.ClientWebSocketResponse) -> None:
    """Bytes both ways, until either side ends."""
    work = (asyncio.ensure_future(_to_viewer(websocket, inside)), asyncio.ensure_future(_to_screen(websocket, inside)))
    try:
        await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)


async def _to_viewer(websocket: WebSocket, inside: aiohttp.ClientWebSocketResponse) -> None:
    async for message in inside:
        if message.type is not aiohttp.WSMsgType.BINARY:
            return
        async with asyncio.timeout(SEND_S):
            await websocket.send_bytes(message.data)


async def _to_screen(websocket: WebSocket, inside: aiohttp.ClientWebSocketResponse) -> None:
    while (message := await websocket.receive())["type"] != "websocket.disconnect":
        data: bytes | None = message.get("bytes")
        if data is None or len(data) > MAX_FRAME:
            return
        await inside.send_bytes(data)


async def _close(websocket: WebSocket, code: int, reason: str) -> None:
    with contextlib.suppress(Exception):  # it may be gone
        async with asyncio.timeout(SEND_S):
            await websocket.close(code, websockets.reason(reason))
