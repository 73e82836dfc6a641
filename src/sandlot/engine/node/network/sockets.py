"""Sockets that live in a router's namespace, whoever serves them."""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import socket
import struct
import threading
import time
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass

from sandlot.engine.core.errors import Unavailable
from sandlot.engine.node.network.slot_plan import DNS_PORT, EGRESS_PORT, GUEST_GATEWAY, PINS, SlotPlan

_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _IFF_RUNNING = 0x8913, 0x40
_RUNNING_S = 5
_BACKLOG = 128
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Listeners:
    """What a router listens on, towards its guest."""

    dns_udp: socket.socket
    dns_tcp: socket.socket
    egress: socket.socket

    def all(self) -> tuple[socket.socket, socket.socket, socket.socket]:
        return self.dns_udp, self.dns_tcp, self.egress

    def close(self) -> None:
        for listener in self.all():
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
