"""The program that serves the relays of all slots: guests talk to it, and to nothing of the server.

It is nobody on the host, without capabilities. Its sockets come from the server, which opened them in the routers' namespaces.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import resource
import signal
import socket
import sys
from collections import deque
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import uvloop

from sandlot.engine.node.network.relay import Common, Relay
from sandlot.engine.node.network.relay_wire import MAX_FDS, Frames, frame, rules_in
from sandlot.engine.node.network.resolver import Resolver
from sandlot.engine.node.network.sockets import Listeners

log = logging.getLogger(__name__)

_NOBODY = 65534
_MEMORY = 2 << 30
_REPORT_S = 2
_MOST_UNSENT = 8 << 20  # of reports that the server does not take; what comes then is not told
_NICE = 5  # the server answers first
_OOM_SCORE = 500
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38


class RelayServer:
    """Does what the server says: take a slot's sockets, enforce rules there, let go."""

    def __init__(self, control: socket.socket, resolver: Resolver) -> None:
        self._control, self._common = control, Common(resolver, self._ask)
        self._frames = Frames()
        self._fds: deque[int] = deque()
        self._relays: dict[int, Relay] = {}
        self._ended = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()
        self._out = bytearray()

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._control, self._read)
        reports = asyncio.create_task(self._report())
        await self._ended.wait()
        reports.cancel()

    def _read(self) -> None:
        try:
            part, fds, _, _ = socket.recv_fds(self._control, 1 << 18, MAX_FDS)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            part, fds = b"", []
        self._fds.extend(fds)
        if not part:
            self._ended.set()
            return
        for message in self._frames.feed(part):
            self._do(message)

    def _do(self, message: dict[str, Any]) -> None:
        if message["do"] == "trust":
            self._common.dialer.trust(message["authorities"])
            return
        if message["do"] == "certified":
            self._common.leaves.take(message["name"], message["certified"])
            return
        slot = message["slot"]
        if message["do"] == "serve":
            udp, tcp, egress = (socket.socket(fileno=self._fds.popleft()) for _ in range(3))
            self._relays[slot] = Relay(slot, Listeners(udp, tcp, egress), self._common)
        if message["do"] in ("serve", "enforce"):
            self._relays[slot].enforce(rules_in(message["rules"]))
            self._say(message["id"])
        elif message["do"] == "release":
            task = asyncio.get_running_loop().create_task(self._release(slot, self._relays.pop(slot), message["id"]))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _release(self, slot: int, relay: Relay, id: int) -> None:
        await relay.close()
        self._tell(slot, relay)
        self._say(id)

    async def _report(self) -> None:
        """Tell, from time to time, what left."""
        while True:
            await asyncio.sleep(_REPORT_S)
            for slot, relay in self._relays.items():
                self._tell(slot, relay)

    def _tell(self, slot: int, relay: Relay) -> None:
        if (news := relay.flows.take()) is not None and len(self._out) < _MOST_UNSENT:
            self._send({"slot": slot, "flows": news})

    def _ask(self, slot: int, name: str) -> None:
        self._send({"slot": slot, "certify": name})

    def _say(self, id: int) -> None:
        self._send({"done": id})

    def _send(self, message: dict[str, Any]) -> None:
        is_first = not self._out
        self._out += frame(message)
        if is_first:
            self._flush()

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            del self._out[: self._control.send(self._out)]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._ended.set()
            return
        if self._out:
            loop.add_writer(self._control, self._flush)
        else:
            loop.remove_writer(self._control)


def give_up_privileges() -> None:
    """Be nobody: all that is left to do is to use sockets."""
    libc = ctypes.CDLL(None, use_errno=True)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "could not give up new privileges")
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # if it never sees the end of its control socket


async def _main(control: socket.socket, servers: list[str], opened: list[str], pool: str) -> None:
    resolver = Resolver(servers, [IPv4Network(each) for each in opened], IPv4Network(pool))
    await RelayServer(control, resolver).serve()
    os._exit(0)


def main() -> None:
    """Arguments: the control socket, resolvers, opened ranges, the range of slots (lists with commas)."""
    fd, servers, opened, pool = sys.argv[1:5]
    control = socket.socket(fileno=int(fd))
    control.setblocking(False)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    give_up_privileges()
    uvloop.run(_main(control, [*filter(None, servers.split(","))], [*filter(None, opened.split(","))], pool))


if __name__ == "__main__":
    main()
