"""Sockets that live in a router's namespace and are served by this process."""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass

from sandlot.engine.core.errors import Unavailable
from sandlot.engine.node.network.slot_plan import DNS_PORT, EGRESS_PORT, GUEST_GATEWAY, PINS, SlotPlan

log = logging.getLogger(__name__)

_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _IFF_RUNNING = 0x8913, 0x40
_RUNNING_S = 5
_BACKLOG = 128
_CHUNK = 65536
_FLUSH_S = 10
_libc = ctypes.CDLL(None, use_errno=True)

Serve = Callable[[socket.socket, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Listeners:
    """What a router listens on, towards its guest."""

    dns_udp: socket.socket
    dns_tcp: socket.socket
    egress: socket.socket

    def close(self) -> None:
        for listener in (self.dns_udp, self.dns_tcp, self.egress):
            listener.close()


async def listen(plan: SlotPlan) -> Listeners:
    """Open the router's listeners once its links carry. A socket stays in the namespace it was made in, whoever uses it."""
    result: Future[Listeners] = Future()
    # A thread of its own that ends: one that stayed in the namespace would make later sockets there by mistake.
    threading.Thread(target=_listen_inside, args=(plan, result), name=f"listen-{plan.index}", daemon=True).start()
    try:
        return await asyncio.shield(asyncio.wrap_future(result))
    except asyncio.CancelledError:
        result.add_done_callback(_close_unused)
        raise


def _close_unused(result: Future[Listeners]) -> None:
    if result.exception() is None:
        result.result().close()


def _listen_inside(plan: SlotPlan, result: Future[Listeners]) -> None:
    opened: list[socket.socket] = []
    try:
        _wait_until_running(plan.link)
        _enter(plan)
        _wait_until_running("up", "down")
        gateway = str(GUEST_GATEWAY)
        for kind, port in (
            (socket.SOCK_DGRAM, DNS_PORT),
            (socket.SOCK_STREAM, DNS_PORT),
            (socket.SOCK_STREAM, EGRESS_PORT),
        ):
            listener = socket.socket(socket.AF_INET, kind)
            opened.append(listener)
            listener.setblocking(False)
            if kind == socket.SOCK_STREAM:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((gateway, port))
            if kind == socket.SOCK_STREAM:
                listener.listen(_BACKLOG)
        result.set_result(Listeners(*opened))
    except BaseException as error:
        for listener in opened:
            listener.close()
        result.set_exception(error)


def _wait_until_running(*links: str) -> None:
    """The kernel turns a link on a moment after its peer is up; what is sent before is lost, and asked for a second later."""
    deadline = time.monotonic() + _RUNNING_S
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        for link in links:
            request = struct.pack("16sh22x", link.encode(), 0)
            while not struct.unpack("16xh22x", fcntl.ioctl(probe, _SIOCGIFFLAGS, request))[0] & _IFF_RUNNING:
                if time.monotonic() > deadline:
                    raise Unavailable(f"the network link {link} did not come up in {_RUNNING_S} s")
                time.sleep(0.001)


def _enter(plan: SlotPlan) -> None:
    fd = os.open(PINS / plan.router, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(fd, _CLONE_NEWNET) != 0:
            raise Unavailable(f"could not enter network slot {plan.index}: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(fd)


class Budget:
    """How much of something all sandboxes together may have of this process, so that hostile ones leave it descriptors."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def take(self) -> bool:
        if self._left <= 0:
            return False
        self._left -= 1
        return True

    def give(self) -> None:
        self._left += 1


class Acceptor:
    """Serves each connection of a listener in a task of its own, up to a limit; an idle listener costs no task."""

    def __init__(self, listener: socket.socket, serve: Serve, limit: int, budget: Budget) -> None:
        self._listener, self._serve, self._limit, self._budget = listener, serve, limit, budget
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._loop.add_reader(listener, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError, InterruptedError):
            return
        except OSError as error:  # out of descriptors: look away for a moment, the listener would report itself forever
            log.warning("a sandbox's connection could not be accepted: %s", error)
            self._loop.remove_reader(self._listener)
            self._loop.call_later(1, self._look_again)
            return
        if len(self._tasks) >= self._limit or not self._budget.take():
            connection.close()
            return
        connection.setblocking(False)
        task = self._loop.create_task(self._serve_one(connection))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._budget.give()

    def _look_again(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._listener, self._accept)

    async def _serve_one(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection, limit=_CHUNK)
        try:
            await self._serve(connection, reader, writer)
            async with asyncio.timeout(_FLUSH_S):  # a guest that does not read holds nothing up for longer
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, EOFError, ValueError) as error:
            log.debug("a sandbox's connection ended: %r", error)
        except Exception:
            log.exception("a sandbox's connection failed in the relay")
        finally:
            writer.transport.abort()

    async def close(self) -> None:
        self._is_closed = True
        self._loop.remove_reader(self._listener)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
