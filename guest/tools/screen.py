"""The screen for people who look on: a WebSocket that carries VNC, one X11 VNC server for each viewer, by a token that works once.

Whoever may run commands in the sandbox admits a viewer by the hash of a token, and says whether it may use mouse and keyboard.
The VNC server itself keeps those who may not from doing so.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tools import processes
from tools.admission import Refused
from tools.viewers import Viewers
from tools.workspace import Workspace

PATH = "/screen"
MOST_VIEWERS = 8
PIECE = 1 << 16
PROGRAM = "x11vnc"
OPTIONS = ("-inetd", "-norc", "-nopw", "-quiet", "-shared", "-wait", "30", "-defer", "15", "-nowf", "-noxrecord")
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Screen:
    """The WebSocket's side of it."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace, self._viewers = workspace, Viewers(workspace.state, workspace.admission)
        self._inside = 0

    async def __call__(self, token: str | None, receive: Receive, send: Send) -> None:
        await receive()  # the handshake
        try:
            control = self._viewers.take(token)
            if self._inside >= MOST_VIEWERS:
                raise Refused(f"{MOST_VIEWERS} viewers look at this screen already")
            server, ours = await self._start(control)
        except (Refused, OSError) as refused:
            await send({"type": "websocket.close", "code": 1008, "reason": str(refused)[:120]})
            return
        self._inside += 1
        try:
            await send({"type": "websocket.accept"})
            await _carry(ours, receive, send)
        finally:
            self._inside -= 1
            ours.close()
            await asyncio.shield(processes.end(server))

    async def _start(self, control: bool) -> tuple[Process, socket.socket]:
        """A VNC server that speaks on its standard input, and our end of it. Raises `Refused`: there is nothing to look at."""
        environment = self._workspace.environment()
        display, program = environment.get("DISPLAY"), shutil.which(PROGRAM, path=environment.get("PATH"))
        if not display or program is None:
            raise Refused(f"this sandbox has no screen: it needs a DISPLAY and the program {PROGRAM}")
        # By another name: who looks for the stream that the SDKs start must not find this one.
        named = self._workspace.state / "screen-vnc"
        if not named.is_symlink():
            named.symlink_to(program)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        options = [*OPTIONS, "-display", display, *(() if control else ("-viewonly",))]
        try:
            server = await asyncio.create_subprocess_exec(
                str(named),
                *options,
                env=environment,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return server, ours


async def _carry(ours: socket.socket, receive: Receive, send: Send) -> None:
    """Bytes both ways, until either side ends."""
    loop = asyncio.get_running_loop()

    async def to_viewer() -> None:
        while data := await loop.sock_recv(ours, PIECE):
            await send({"type": "websocket.send", "bytes": data})
        await send({"type": "websocket.close", "code": 1000, "reason": "the screen is gone"})

    async def from_viewer() -> None:
        while (message := await receive())["type"] == "websocket.receive":
            if message.get("bytes"):
                await loop.sock_sendall(ours, message["bytes"])

    work = [asyncio.create_task(to_viewer()), asyncio.create_task(from_viewer())]
    try:
        await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
