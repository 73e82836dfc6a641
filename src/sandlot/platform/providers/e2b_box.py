"""Acting in one sandbox through the E2B SDK: commands, files, terminals. What the sandbox says is data: bounded, never acted upon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from e2b import AsyncSandbox, PtySize
from e2b.sandbox.commands.command_handle import CommandExitException
from e2b.sandbox.filesystem.filesystem import FileType
from e2b.sandbox.filesystem.watch_handle import FilesystemEvent, FilesystemEventType

from sandlot.platform.core.errors import InvalidRequest, SandboxGone, Unavailable
from sandlot.platform.core.model import BoxProcess, FileChange, FileChangeKind, FileEntry, PortAddress, TerminalSize
from sandlot.platform.core.ports import FileWatch, OnChange, OnData, OnOutput, RunningCommand, Terminal
from sandlot.platform.providers.e2b_errors import translated

MAX_PROCESSES = 1000
TRAFFIC_TOKEN = "e2b-traffic-access-token"
MAX_COMMAND = 1 << 20
MAX_PATH = 4096
MAX_ENTRIES = 10_000
_KINDS = {
    FilesystemEventType.CREATE: FileChangeKind.CREATED,
    FilesystemEventType.WRITE: FileChangeKind.WRITTEN,
    FilesystemEventType.REMOVE: FileChangeKind.REMOVED,
    FilesystemEventType.RENAME: FileChangeKind.RENAMED,
    FilesystemEventType.CHMOD: FileChangeKind.MODE_CHANGED,
}


class _Connection:
    """What the parts of a box share. `forget` is called when the connection is no good any more."""

    def __init__(self, provider: str, sandbox: AsyncSandbox, forget: Callable[[], object]) -> None:
        self.provider, self.sandbox, self._forget = provider, sandbox, forget

    @contextmanager
    def acting(self, doing: str) -> Iterator[None]:
        try:
            with translated(self.provider, doing, inside=True):
                yield
        except (SandboxGone, Unavailable):
            self._forget()
            raise


class E2BBox:
    """`traffic_url` is one address for the traffic of all sandboxes, if the provider has one."""

    def __init__(
        self,
        provider: str,
        sandbox: AsyncSandbox,
        *,
        scheme: str,
        traffic_url: str | None,
        forget: Callable[[], object],
    ) -> None:
        self._sandbox, self._scheme, self._traffic_url = sandbox, scheme, traffic_url
        connection = _Connection(provider, sandbox, forget)
        self.commands = E2BCommands(connection)
        self.files = E2BFiles(connection)
        self.terminals = E2BTerminals(connection)

    def url(self, port: int) -> str:
        return f"{self._scheme}://{self._sandbox.get_host(port)}"

    def address(self, port: int) -> PortAddress:
        headers = {}
        if self._sandbox.traffic_access_token:
            headers[TRAFFIC_TOKEN] = self._sandbox.traffic_access_token
        if self._traffic_url is None:
            return PortAddress(url=self.url(port), headers=headers)
        route = {"E2b-Sandbox-Id": self._sandbox.sandbox_id, "E2b-Sandbox-Port": str(port)}
        return PortAddress(url=self._traffic_url, headers={**headers, **route})


class E2BCommands:
    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    async def start(
        self, command: str, *, cwd: str | None, envs: Mapping[str, str], user: str | None, on_output: OnOutput
    ) -> RunningCommand:
        with self._connection.acting("start a command"):
            handle = await self._connection.sandbox.commands.run(
                command,
                background=True,
                envs=dict(envs),
                cwd=cwd,
                user=user,
                timeout=0,
                retain_output=False,
                **_handlers(on_output),
            )
        return _E2BCommand(self._connection, handle)

    async def attach(self, pid: int, on_output: OnOutput) -> RunningCommand:
        with self._connection.acting("attach to a command"):
            handle = await self._connection.sandbox.commands.connect(
                pid, timeout=0, retain_output=False, **_handlers(on_output)
            )
        return _E2BCommand(self._connection, handle)

    async def processes(self) -> Sequence[BoxProcess]:
        with self._connection.acting("list processes"):
            found = await self._connection.sandbox.commands.list()
        return [BoxProcess(pid=one.pid, command=_command(one)) for one in found[:MAX_PROCESSES]]


class E2BFiles:
    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    async def write(self, path: str, content: bytes | AsyncIterable[bytes]) -> None:
        with self._connection.acting("write a file"):
            await self._connection.sandbox.files.write(path, content)

    async def size(self, path: str) -> int:
        with self._connection.acting("look at a file"):
            info = await self._connection.sandbox.files.get_info(path)
        if info.type is not FileType.FILE:
            raise InvalidRequest(f"could not read {path[:200]!r}: it is not a file")
        return info.size

    async def read(self, path: str) -> AsyncIterator[bytes]:
        with self._connection.acting("read a file"):
            reader = await self._connection.sandbox.files.read(path, format="stream")
            async with reader:
                async for piece in reader:
                    yield bytes(piece)

    async def entries(self, path: str) -> Sequence[FileEntry]:
        with self._connection.acting("list a directory"):
            found = await self._connection.sandbox.files.list(path)
        return [_entry(one) for one in found[:MAX_ENTRIES]]

    async def make_dir(self, path: str) -> None:
        with self._connection.acting("make a directory"):
            await self._connection.sandbox.files.make_dir(path)

    async def remove(self, path: str) -> None:
        with self._connection.acting("remove a file"):
            await self._connection.sandbox.files.remove(path)

    async def watch(self, path: str, *, recursive: bool, on_change: OnChange) -> FileWatch:
        ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

        async def changed(event: FilesystemEvent) -> None:
            if (kind := _KINDS.get(event.type)) is not None:
                await on_change(FileChange(event.name[:MAX_PATH], kind))

        def left(error: Exception | None) -> None:
            if not ended.done():
                ended.set_result(error)

        with self._connection.acting("watch a directory"):
            handle = await self._connection.sandbox.files.watch_dir(
                path, changed, on_exit=left, timeout=0, recursive=recursive
            )
        return _E2BWatch(self._connection, handle, ended)


class E2BTerminals:
    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    async def open(
        self, size: TerminalSize, *, cwd: str | None, envs: Mapping[str, str], user: str | None, on_data: OnData
    ) -> Terminal:
        with self._connection.acting("open a terminal"):
            handle = await self._connection.sandbox.pty.create(
                PtySize(rows=size.rows, cols=size.cols), on_data=on_data, user=user, cwd=cwd, envs=dict(envs), timeout=0
            )
        return _E2BTerminal(self._connection, handle)

    async def attach(self, pid: int, on_data: OnData) -> Terminal:
        with self._connection.acting("attach to a terminal"):
            handle = await self._connection.sandbox.pty.connect(pid, on_data=on_data, timeout=0)
        return _E2BTerminal(self._connection, handle)


class _E2BCommand:
    def __init__(self, connection: _Connection, handle: Any) -> None:
        self._connection, self._handle = connection, handle
        self.pid: int = handle.pid

    async def wait(self) -> int:
        try:
            with self._connection.acting("follow a command"):
                return int((await self._handle.wait()).exit_code)
        except CommandExitException as ended:
            return int(ended.exit_code)

    async def kill(self) -> None:
        with self._connection.acting("end a command"):
            await self._handle.kill()

    async def detach(self) -> None:
        await self._handle.disconnect()


class _E2BTerminal(_E2BCommand):
    async def write(self, data: bytes) -> None:
        with self._connection.acting("write to a terminal"):
            await self._connection.sandbox.pty.send_stdin(self.pid, data)

    async def resize(self, size: TerminalSize) -> None:
        with self._connection.acting("resize a terminal"):
            await self._connection.sandbox.pty.resize(self.pid, PtySize(rows=size.rows, cols=size.cols))


class _E2BWatch:
    def __init__(self, connection: _Connection, handle: Any, ended: asyncio.Future[Exception | None]) -> None:
        self._connection, self._handle, self._ended = connection, handle, ended

    async def wait(self) -> None:
        error = await asyncio.shield(self._ended)
        if error is not None:
            with self._connection.acting("watch a directory"):
                raise error

    async def stop(self) -> None:
        await self._handle.stop()


def _handlers(on_output: OnOutput) -> dict[str, Any]:
    async def stdout(text: str) -> None:
        await on_output("stdout", text)

    async def stderr(text: str) -> None:
        await on_output("stderr", text)

    return {"on_stdout": stdout, "on_stderr": stderr}


def _command(process: Any) -> str:
    """The SDK runs commands as `bash -l -c COMMAND`."""
    shell = process.cmd == "/bin/bash" and list(process.args[:2]) == ["-l", "-c"] and len(process.args) == 3
    return str(process.args[2] if shell else " ".join([process.cmd, *process.args]))[:MAX_COMMAND]


def _entry(info: Any) -> FileEntry:
    return FileEntry(
        name=str(info.name)[:MAX_PATH],
        path=str(info.path)[:MAX_PATH],
        type="symlink" if info.symlink_target is not None else info.type.value if info.type else "file",
        size=int(info.size),
        mode=int(info.mode),
        modified_at=info.modified_time,
    )
