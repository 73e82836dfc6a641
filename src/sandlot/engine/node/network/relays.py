"""The relays of all slots, as the server sees them: a process of its own, that is replaced when it fails."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

from sandlot import children
from sandlot.data_files import SOURCES
from sandlot.engine.core.network_policy import Rules
from sandlot.engine.node.network import relay_program
from sandlot.engine.node.network.relay_wire import Frames, frame, rules_out
from sandlot.engine.node.network.sockets import Listeners

log = logging.getLogger(__name__)

ANSWER_S = 20
_STEADY_S = 60
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 5.0


@dataclass(slots=True)
class _Served:
    listeners: Listeners
    rules: Rules


class Relays:
    """What is to be served is kept here, so that a new process can take over where one ended.

    A process that is gone passes nothing on, so all that was asked of it holds: nobody waits for its successor.
    """

    def __init__(
        self,
        dns_servers: Sequence[str],
        opened: Sequence[IPv4Network],
        pool: IPv4Network,
        certify: Callable[[str], str],
        trusted: str | None = None,
    ) -> None:
        """`certify` makes a key and a certificate for a name that a rule has opened."""
        self.on_flows: Callable[[int, Mapping[str, Any]], None] = lambda *_: None
        self._certify, self._trusted = certify, trusted
        self._certifying: set[asyncio.Task[None]] = set()
        self._arguments = (",".join(dns_servers), ",".join(map(str, opened)), str(pool))
        self._served: dict[int, _Served] = {}
        self._process: _Process | None = None
        self._keeping: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def open(self) -> None:
        self._process = self._new_process()
        self._keeping = asyncio.create_task(self._keep(), name="relays")

    async def close(self) -> None:
        if self._keeping:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        if self._process:
            await self._process.end()
            self._process = None
        for served in self._served.values():
            served.listeners.close()
        self._served.clear()

    async def serve(self, index: int, listeners: Listeners) -> None:
        """Take these sockets over."""
        served = self._served[index] = _Served(listeners, Rules())
        if self._process:
            await self._process.ask(*_serving(index, served))

    async def enforce(self, index: int, rules: Rules) -> None:
        """Decide by these rules from now on, and end what they do not allow."""
        served = self._served[index]
        if served.rules != rules:
            served.rules = rules
            if self._process:
                await self._process.ask({"do": "enforce", "slot": index, "rules": rules_out(rules)})

    async def release(self, index: int) -> None:
        """Also lets go of the namespace: a socket would keep it alive after its name is gone. Idempotent."""
        served = self._served.pop(index, None)
        if served is None:
            return
        try:
            if self._process:
                await self._process.ask({"do": "release", "slot": index})
        finally:
            served.listeners.close()

    async def _keep(self) -> None:
        """Replace the process whenever it ends."""
        pause_s = _FIRST_PAUSE_S
        while self._process:
            began = time.monotonic()
            await self._process.ended()
            log.error("the process of the network relays ended; another one takes over")
            self._process = None
            pause_s = _FIRST_PAUSE_S if time.monotonic() - began > _STEADY_S else min(2 * pause_s, _LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s)
            self._process = self._new_process()
            for index, served in self._served.items():  # nothing is awaited: what is asked next comes behind
                self._process.post(*_serving(index, served))

    def _new_process(self) -> _Process:
        made = _Process(self._arguments, self._told)
        if self._trusted:
            made.post({"do": "trust", "authorities": self._trusted})
        return made

    def _told(self, message: Mapping[str, Any]) -> None:
        if "flows" in message:
            self.on_flows(message["slot"], message["flows"])
        elif "certify" in message:
            task = asyncio.create_task(self._certified(message["slot"], message["certify"]))
            self._certifying.add(task)
            task.add_done_callback(self._certifying.discard)

    async def _certified(self, slot: int, name: str) -> None:
        """The process serves guests: it gets certificates for names that a rule of the slot opens, and for no others."""
        served, made = self._served.get(slot), None
        if served is not None and served.rules.header_rule(name) is not None:
            try:
                made = await asyncio.to_thread(self._certify, name)
            except (OSError, ValueError):
                log.exception("no certificate could be made for %s", name)
        if self._process:
            self._process.post({"do": "certified", "name": name, "certified": made})


def _serving(index: int, served: _Served) -> tuple[dict[str, Any], list[int]]:
    message = {"do": "serve", "slot": index, "rules": rules_out(served.rules)}
    return message, [listener.fileno() for listener in served.listeners.all()]


class _Process:
    def __init__(self, arguments: Sequence[str], told: Callable[[Mapping[str, Any]], None]) -> None:
        self._told = told
        self._control, theirs = socket.socketpair()
        self._control.setblocking(False)
        with theirs:
            self._child: subprocess.Popen[bytes] = children.spawn(
                [sys.executable, "-P", "-m", relay_program.__name__, str(theirs.fileno()), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={"PYTHONPATH": str(SOURCES), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self.pid = self._child.pid
        self._pidfd = os.pidfd_open(self.pid)
        self._ids = itertools.count()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._out: asyncio.Queue[tuple[bytes, list[int]]] = asyncio.Queue()
        self._is_gone = False
        self._life = asyncio.create_task(self._live(), name="relays' process")

    def post(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> int:
        """Have this done after all that was asked before."""
        id = next(self._ids)
        # Copies: the caller may close the originals before this is sent.
        self._out.put_nowait((frame({**message, "id": id}), [os.dup(fd) for fd in fds]))
        return id

    async def ask(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Return when it is done, or the process is gone; one that does not answer is ended."""
        if self._is_gone:
            return
        id = self.post(message, fds)
        future = self._waiting[id] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(ANSWER_S):
                await future
        except TimeoutError:
            log.error("the process of the network relays does not answer")
            await self.end()
        finally:
            self._waiting.pop(id, None)

    async def end(self) -> None:
        if not self._is_gone:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        await self.ended()

    async def ended(self) -> None:
        await asyncio.wait({self._life})

    async def _live(self) -> None:
        """Talk with the process until it is gone, then clean up after it."""
        writer = asyncio.create_task(self._write())
        try:
            with contextlib.suppress(OSError):
                await self._read()
        finally:
            writer.cancel()
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            self._is_gone = True
            self._child.wait()  # it was killed: this is a moment
            children.release(self._child)
            os.close(self._pidfd)
            self._control.close()
            while not self._out.empty():
                _close(self._out.get_nowait()[1])
            for future in self._waiting.values():
                if not future.done():
                    future.set_result(None)

    async def _read(self) -> None:
        frames = Frames()
        loop = asyncio.get_running_loop()
        while part := await loop.sock_recv(self._control, 65536):
            for message in frames.feed(part):
                if "done" not in message:
                    self._told(message)
                    continue
                future = self._waiting.get(message["done"])
                if future and not future.done():
                    future.set_result(None)

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            data, fds = await self._out.get()
            try:
                sent = await self._send_fds(data, fds) if fds else 0
                await loop.sock_sendall(self._control, data[sent:])
            except OSError:
                return  # it is gone; the reader sees it too
            finally:
                _close(fds)

    async def _send_fds(self, data: bytes, fds: Sequence[int]) -> int:
        while True:
            try:
                return socket.send_fds(self._control, [data], fds)
            except BlockingIOError:
                await asyncio.sleep(0.01)


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
