"""One program of git as a child of this process: streams with limits, an end that is waited for by pidfd, no orphans."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import resource
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from sandlot import children
from sandlot.platform.core.errors import Unavailable

PIECE = 256 << 10
PIPE_BYTES = 1 << 20
KEPT_STDERR = 16 << 10
MEMORY = 1 << 30  # of one process of git, files that it maps not counted


class Child:
    """Use `start`, and `close` in any case: that ends the program, and all that it started."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        self._status: int | None = None
        self._stderr = bytearray()
        self._transports: list[asyncio.BaseTransport] = []
        self._noting: asyncio.Task[None] | None = None
        self.stdout = asyncio.StreamReader(limit=PIECE)
        self.stdin: asyncio.StreamWriter | None = None

    @classmethod
    async def start(
        cls, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path | None = None, has_input: bool = False
    ) -> Child:
        try:
            process = children.spawn(
                argv,
                stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(env),
                cwd=cwd,
                start_new_session=True,
                bufsize=0,
            )
        except FileNotFoundError as error:
            raise Unavailable(f"{argv[0]!r} or {str(cwd)!r} is not there on this host") from error
        with contextlib.suppress(ProcessLookupError):  # before it is fed: hostile packs ask for any amount
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (MEMORY, MEMORY))
        child = cls(process)
        try:
            await child._connect()
        except BaseException:
            await child.close()
            raise
        return child

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        errors = asyncio.StreamReader(limit=PIECE)
        for reader, pipe in ((self.stdout, self._process.stdout), (errors, self._process.stderr)):
            transport, _ = await loop.connect_read_pipe(_reading(reader), _large(pipe))
            self._transports.append(transport)
        if self._process.stdin is not None:
            protocol = _Writing(loop=loop)
            written, _ = await loop.connect_write_pipe(lambda: protocol, _large(self._process.stdin))
            self._transports.append(written)
            self.stdin = asyncio.StreamWriter(written, protocol, None, loop)
        self._noting = asyncio.ensure_future(self._note(errors))

    async def _note(self, errors: asyncio.StreamReader) -> None:
        while piece := await errors.read(PIECE):
            self._stderr += piece
            del self._stderr[: -KEPT_STDERR or None]

    async def wait(self) -> int:
        """Its exit code, or minus the signal that ended it."""
        if self._status is None:
            await _readable(self._pidfd)
            self._reap()
        if self._noting is not None:
            with contextlib.suppress(TimeoutError):  # somebody else may hold the pipe
                await asyncio.wait_for(asyncio.shield(self._noting), 1.0)
        assert self._status is not None
        return self._status

    @property
    def stderr(self) -> str:
        """The end of what it said."""
        return self._stderr.decode(errors="replace")

    def kill(self) -> None:
        """End it and what it started. It is a group of its own, and not reaped before `wait`: the number is not another's."""
        if self._status is None and self._process.pid > 1:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def close(self) -> None:
        if self._pidfd < 0:
            return
        self.kill()
        try:
            if self._status is None:
                await asyncio.shield(_readable(self._pidfd))
        finally:
            self._reap()
            os.close(self._pidfd)
            self._pidfd = -1
            if self._noting is not None:
                self._noting.cancel()
            for transport in self._transports:
                transport.close()  # closes its pipe, too

    def _reap(self) -> None:
        if self._status is None:
            self._status = self._process.wait()
            children.release(self._process)


class _Writing(asyncio.streams.FlowControlMixin):
    """What `StreamWriter.drain` waits on. A reader that is gone shows as an error of the next write."""

    def _get_close_waiter(self, stream: asyncio.StreamWriter) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


def _reading(reader: asyncio.StreamReader) -> Any:
    return lambda: asyncio.StreamReaderProtocol(reader)


def _large(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    with contextlib.suppress(OSError):  # an unprivileged user may have used up its share
        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return pipe


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    loop.add_reader(fd, wake)
    try:
        await future
    finally:
        loop.remove_reader(fd)
