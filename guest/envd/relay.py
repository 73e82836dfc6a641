"""Makes services that listen only on the sandbox's loopback reachable from outside, on request, through a port of its own."""

from __future__ import annotations

import asyncio
import socket

IDLE_SECONDS = 120.0
CONNECT_SECONDS = 2.0
MAX_RELAYS = 256
_CHUNK = 128 * 1024
_LOOPBACKS = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


class Relay:
    """One open door: a listening socket, and the loopback address it leads to."""

    def __init__(self, family: int, address: str, port: int) -> None:
        self._family = family
        self._address = address
        self._target = port
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._listener.bind(("0.0.0.0", 0))
        self._listener.listen(128)
        self.port: int = self._listener.getsockname()[1]
        self.used_at = self._loop.time()
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def is_idle(self, now: float) -> bool:
        return not self._connections and now - self.used_at > IDLE_SECONDS

    def close(self) -> None:
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()

    def _accept(self) -> None:
        try:
            client, _peer = self._listener.accept()
        except OSError:
            return
        client.setblocking(False)
        task = self._loop.create_task(self._carry(client))
        self._connections.add(task)
        task.add_done_callback(self._closed)

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        self.used_at = self._loop.time()
        if not task.cancelled():
            task.exception()  # a broken connection is nobody's news

    async def _carry(self, client: socket.socket) -> None:
        with client:
            server = await connect(self._family, self._address, self._target)
            with server:
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await _splice(client, server)


async def _splice(one: socket.socket, other: socket.socket) -> None:
    """Copy both ways until both ends are closed, or one is and the other stays silent for long."""
    loop = asyncio.get_running_loop()
    moved = [0]
    copying = {loop.create_task(_copy(one, other, moved)), loop.create_task(_copy(other, one, moved))}
    waiting, half_closed = copying, False
    try:
        while waiting:
            before = moved[0]
            patience = IDLE_SECONDS if half_closed else None
            done, waiting = await asyncio.wait(waiting, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
                half_closed = True
            if not done and moved[0] == before:
                return
    finally:
        for task in copying:
            task.cancel()
        await asyncio.gather(*copying, return_exceptions=True)


async def _copy(source: socket.socket, sink: socket.socket, moved: list[int]) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, _CHUNK):
        await loop.sock_sendall(sink, data)
        moved[0] += len(data)
    sink.shutdown(socket.SHUT_WR)


async def connect(family: int, address: str, port: int) -> socket.socket:
    """Raises OSError if nothing accepts there."""
    end = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await asyncio.get_running_loop().sock_connect(end, (address, port))
    except BaseException:
        end.close()
        raise
    return end


class Relays:
    """All open relays by the port they lead to."""

    def __init__(self) -> None:
        self._relays: dict[int, Relay] = {}
        self._sweeping = False

    async def open(self, port: int) -> int | None:
        """The port that leads to the loopback's `port`; None if nothing accepts there, or there are too many relays."""
        found = await self._listening(port)
        if found is None:
            return None
        relay = self._relays.get(port)
        if relay is None:
            if len(self._relays) >= MAX_RELAYS:
                return None
            relay = self._relays[port] = Relay(*found, port)
            self._sweep_later()
        relay.used_at = asyncio.get_running_loop().time()
        return relay.port

    async def _listening(self, port: int) -> tuple[int, str] | None:
        for family, address in _LOOPBACKS:
            try:
                end = await connect(family, address, port)
            except (OSError, TimeoutError):
                continue
            end.close()
            return family, address
        return None

    def _sweep_later(self) -> None:
        if not self._sweeping and self._relays:
            self._sweeping = True
            asyncio.get_running_loop().call_later(IDLE_SECONDS / 2, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = False
        now = asyncio.get_running_loop().time()
        for port, relay in tuple(self._relays.items()):
            if relay.is_idle(now):
                relay.close()
                del self._relays[port]
        self._sweep_later()
