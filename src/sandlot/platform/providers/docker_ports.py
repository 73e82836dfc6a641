"""Ports of containers on this machine's loopback: each connection is carried by a command in the container.

Nothing is published and no route to the container is needed: it works with a daemon elsewhere, and for containers that have no
network at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import aiohttp
from aiodocker import Docker
from aiodocker.exceptions import DockerError
from aiodocker.stream import Stream

log = logging.getLogger(__name__)
CHUNK = 64 * 1024
MOST_PORTS = 64  # of one container


class ContainerPorts:
    """Loopback ports of this process that lead into containers. `dial` is the command that connects itself with a port."""

    def __init__(self, docker: Callable[[], Docker], dial: Callable[[int], Sequence[str]]) -> None:
        self._docker, self._dial = docker, dial
        self._open: dict[str, dict[int, _Listener]] = {}

    def open(self, container: str, port: int) -> int:
        """The port of this machine's loopback that leads to it."""
        ports = self._open.setdefault(container, {})
        if port not in ports:
            if len(ports) >= MOST_PORTS:
                ports.pop(next(one for one in ports)).close()
            ports[port] = _Listener(lambda reader, writer: self._carry(container, port, reader, writer))
        return ports[port].port

    def close(self, container: str | None = None) -> None:
        """Of one container, or of all."""
        names = list(self._open) if container is None else [container]
        for name in names:
            for listener in self._open.pop(name, {}).values():
                listener.close()

    async def _carry(
        self, container: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            command = list(self._dial(port))
            inside = (
                await self._docker().containers.container(container).exec(command, stdin=True, stderr=False, user="0")
            )
            async with inside.start() as stream:
                await _splice(stream, reader, writer)
        except (DockerError, aiohttp.ClientError, OSError) as error:
            log.debug("a connection to port %d of container %s ended: %s", port, container, error)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


class _Listener:
    """Takes connections as soon as the loop gets to it; those that come before wait."""

    def __init__(
        self, carry: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]
    ) -> None:
        self._carry = carry
        self._connections: set[asyncio.Task[None]] = set()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = int(self._socket.getsockname()[1])
        self._serving = asyncio.ensure_future(asyncio.start_server(self._accepted, sock=self._socket))

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._carry(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    def close(self) -> None:
        if self._serving.done() and not self._serving.cancelled() and self._serving.exception() is None:
            self._serving.result().close()
        else:
            self._serving.cancel()
            self._socket.close()
        for task in self._connections:
            task.cancel()


async def _splice(stream: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until either side ends."""
    up = asyncio.ensure_future(_up(reader, stream))
    down = asyncio.ensure_future(_down(stream, writer))
    try:
        await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (up, down):
            task.cancel()
        await asyncio.gather(up, down, return_exceptions=True)


async def _up(reader: asyncio.StreamReader, stream: Stream) -> None:
    while data := await reader.read(CHUNK):
        await stream.write_in(data)


async def _down(stream: Stream, writer: asyncio.StreamWriter) -> None:
    while (message := await stream.read_out()) is not None:
        writer.write(message.data)
        await writer.drain()
