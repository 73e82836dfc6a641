"""A listening socket that serves TLS and plain connections alike: the first byte that a client sends tells which it speaks."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

HANDSHAKE = 0x16  # the first byte of every TLS connection; no HTTP request begins with it
FIRST_BYTE_S = 60.0
HANDSHAKE_S = 60.0
AT_ONCE = 64
BACKLOG = 2048
RETRY_S = 0.5


class Listener:
    """Accepts, looks at the first byte without taking it, and hands the connection over to a protocol.

    It has what `asyncio.Server` has as far as uvicorn uses it.
    """

    def __init__(
        self, sock: socket.socket, protocol: Callable[[], asyncio.BaseProtocol], context: ssl.SSLContext
    ) -> None:
        self._sock, self._protocol, self._context = sock, protocol, context
        self._loop = asyncio.get_running_loop()
        self._silent: dict[socket.socket, asyncio.TimerHandle] = {}
        self._beginning: set[asyncio.Task[object]] = set()
        self._closed = False
        sock.setblocking(False)
        sock.listen(BACKLOG)
        self._loop.add_reader(sock, self._accept)

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        return (self._sock,)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._sock)
        self._sock.close()
        for connection in list(self._silent):
            self._forget(connection)
            connection.close()
        for task in self._beginning:
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._beginning, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                connection, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # out of descriptors or memory: others need a moment to give some back
                self._loop.remove_reader(self._sock)
                self._loop.call_later(RETRY_S, self._again)
                return
            connection.setblocking(False)
            if not self._look(connection):
                timer = self._loop.call_later(FIRST_BYTE_S, self._late, connection)
                self._silent[connection] = timer
                self._loop.add_reader(connection, self._readable, connection)

    def _again(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._sock, self._accept)

    def _readable(self, connection: socket.socket) -> None:
        self._forget(connection)
        self._look(connection)

    def _late(self, connection: socket.socket) -> None:
        self._forget(connection)
        connection.close()

    def _forget(self, connection: socket.socket) -> None:
        self._loop.remove_reader(connection)
        self._silent.pop(connection).cancel()

    def _look(self, connection: socket.socket) -> bool:
        """Begin to serve the connection, or end it; False if the client has not said anything yet."""
        try:
            first = connection.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            first = b""
        if not first:
            connection.close()
            return True
        task = self._loop.create_task(self._begin(connection, is_tls=first[0] == HANDSHAKE))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)
        return True

    async def _begin(self, connection: socket.socket, *, is_tls: bool) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(
                self._protocol,
                connection,
                ssl=self._context if is_tls else None,
                ssl_handshake_timeout=HANDSHAKE_S if is_tls else None,
            )
        except (OSError, TimeoutError):  # a client that went away, or that does not trust our certificate
            connection.close()
