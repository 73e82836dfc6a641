"""Providers that follow a script; the plain one passes the same contract as the real ones."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import AsyncIterable, AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sandlot.platform.core.errors import NotFound, ProviderFull, ProviderRefused, SandboxGone, Unavailable
from sandlot.platform.core.model import (
    BoxProcess,
    FileChange,
    FileChangeKind,
    PortAddress,
    ProviderSandbox,
    SandboxSpec,
    TerminalSize,
)
from sandlot.platform.core.ports import (
    Box,
    Channel,
    FileWatch,
    OnChange,
    OnData,
    OnOutput,
    RunningCommand,
    Terminal,
)


@dataclass
class Made:
    """A sandbox that exists only here."""

    sandbox: ProviderSandbox
    spec: SandboxSpec
    files: dict[str, bytes] = field(default_factory=dict)
    processes: dict[int, ScriptedProcess] = field(default_factory=dict)
    watches: list[ScriptedWatch] = field(default_factory=list)
    last_pid: int = 0
    leases: list[int] = field(default_factory=list)  # timeouts that were asked for since it was made


class ScriptedProvider:
    """Sandboxes in memory. A test can take it down, hold its starts, and look at what it has."""

    template: str | None = None
    timeout_s = 3600

    def __init__(self, name: str = "scripted") -> None:
        self.name = name
        self.made: dict[str, Made] = {}
        self.started: list[str] = []  # sessions, in the order in which they were asked for
        self.most_running = 0
        self.is_down = self.is_full = False
        self.go = asyncio.Event()
        self.go.set()

    async def create(self, spec: SandboxSpec) -> str:
        self._answer()
        _check_timeout(spec.timeout_s)
        for known in self.made.values():
            if known.spec.session == spec.session:
                return known.sandbox.id
        if self.is_full:
            raise ProviderFull("the scripted provider is full")
        self.started.append(spec.session)
        await self.go.wait()
        self._answer()
        made = Made(
            ProviderSandbox(id=f"i{len(self.started):04d}{spec.session[-6:]}", session=spec.session, is_paused=False),
            spec,
        )
        self.made[made.sandbox.id] = made
        self.most_running = max(self.most_running, len(self.running))
        return made.sandbox.id

    async def connect(self, sandbox_id: str, timeout_s: int) -> Box:
        made = self._find(sandbox_id)
        self._lease(made, timeout_s)
        made.sandbox = replace(made.sandbox, is_paused=False)
        return ScriptedBox(made)

    async def pause(self, sandbox_id: str) -> None:
        made = self._find(sandbox_id)
        made.sandbox = replace(made.sandbox, is_paused=True)

    async def kill(self, sandbox_id: str) -> None:
        self._answer()
        made = self.made.pop(sandbox_id, None)
        for process in list(made.processes.values()) if made else ():
            process.task.cancel()

    async def set_timeout(self, sandbox_id: str, timeout_s: int) -> None:
        self._lease(self._find(sandbox_id), timeout_s)

    async def find(self, sandbox_id: str) -> ProviderSandbox | None:
        self._answer()
        made = self.made.get(sandbox_id)
        return made.sandbox if made else None

    async def inventory(self) -> Sequence[ProviderSandbox]:
        self._answer()
        return [made.sandbox for made in self.made.values()]

    @property
    def running(self) -> list[ProviderSandbox]:
        return [made.sandbox for made in self.made.values() if not made.sandbox.is_paused]

    def _find(self, sandbox_id: str) -> Made:
        self._answer()
        if sandbox_id not in self.made:
            raise SandboxGone("the scripted provider has no such sandbox")
        return self.made[sandbox_id]

    def _lease(self, made: Made, timeout_s: int) -> None:
        _check_timeout(timeout_s)
        made.leases.append(timeout_s)

    def _answer(self) -> None:
        if self.is_down:
            raise Unavailable("the scripted provider is down")


class ScriptedBox:
    def __init__(self, made: Made) -> None:
        self._made = made
        self.commands, self.files, self.terminals = ScriptedCommands(made), ScriptedFiles(made), ScriptedTerminals(made)

    def url(self, port: int) -> str:
        return f"http://{port}-{self._made.sandbox.id}.scripted"

    def address(self, port: int) -> PortAddress:
        return PortAddress(url=self.url(port))


class ScriptedCommands:
    """Understands `echo words`, `flood characters`, `sleep seconds` and `exit code`."""

    def __init__(self, made: Made) -> None:
        self.made = made

    async def start(
        self, command: str, *, cwd: str | None, envs: Mapping[str, str], user: str | None, on_output: OnOutput
    ) -> RunningCommand:
        process = ScriptedProcess(self.made, command)
        follower = ScriptedFollower(process, on_output)
        process.begin(process.run())
        return follower

    async def attach(self, pid: int, on_output: OnOutput) -> RunningCommand:
        return ScriptedFollower(_running(self.made, pid), on_output)

    async def processes(self) -> Sequence[BoxProcess]:
        return [BoxProcess(pid=process.pid, command=process.command) for process in self.made.processes.values()]


class ScriptedProcess:
    """Runs by itself, whoever follows it, like a real one."""

    def __init__(self, made: Made, command: str) -> None:
        made.last_pid += 1
        self.pid, self.command, self.killed = made.last_pid, command, asyncio.Event()
        self.followers: list[ScriptedFollower] = []
        self.task: asyncio.Task[int]
        self._made = made

    def begin(self, work: Coroutine[Any, Any, int]) -> None:
        self._made.processes[self.pid] = self
        self.task = asyncio.create_task(work)
        self.task.add_done_callback(lambda _: self._made.processes.pop(self.pid, None))

    async def run(self) -> int:
        for part in self.command.split(";"):
            name, *words = shlex.split(part)
            if name == "echo":
                await self.say(" ".join(words) + "\n")
            elif name == "flood":
                await self.say("x" * int(words[0]))
            elif name == "exit":
                return int(words[0])
            elif name == "sleep":
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.killed.wait(), float(words[0]))
                    return 137
        return 0

    async def say(self, text: str) -> None:
        for follower in list(self.followers):
            await follower.on_output("stdout", text)


class ScriptedFollower:
    def __init__(self, process: ScriptedProcess, on_output: OnOutput) -> None:
        self._process, self.on_output, self.pid = process, on_output, process.pid
        process.followers.append(self)

    async def wait(self) -> int:
        await asyncio.wait((self._process.task,))
        if self._process.task.cancelled():
            raise SandboxGone("the scripted provider has no such sandbox")
        return self._process.task.result()

    async def kill(self) -> None:
        self._process.killed.set()

    async def detach(self) -> None:
        self._process.followers.remove(self)


class ScriptedTerminals:
    """A shell that repeats what is typed, and understands `exit code`."""

    def __init__(self, made: Made) -> None:
        self._made = made

    async def open(
        self, size: TerminalSize, *, cwd: str | None, envs: Mapping[str, str], user: str | None, on_data: OnData
    ) -> Terminal:
        process = ScriptedShell(self._made, "/bin/bash -i -l")
        process.begin(process.run())
        return ScriptedTerminal(process, on_data)

    async def attach(self, pid: int, on_data: OnData) -> Terminal:
        process = _running(self._made, pid)
        assert isinstance(process, ScriptedShell)
        return ScriptedTerminal(process, on_data)


class ScriptedShell(ScriptedProcess):
    def __init__(self, made: Made, command: str) -> None:
        super().__init__(made, command)
        self.typed: asyncio.Queue[bytes] = asyncio.Queue()

    async def run(self) -> int:
        while True:
            typing, killed = asyncio.ensure_future(self.typed.get()), asyncio.ensure_future(self.killed.wait())
            await asyncio.wait((typing, killed), return_when=asyncio.FIRST_COMPLETED)
            killed.cancel()
            if not typing.done():
                typing.cancel()
                return 137
            line = typing.result().decode()
            await self.say(line)
            if line.startswith("exit"):
                return int(line.split()[1])


class ScriptedTerminal(ScriptedFollower):
    def __init__(self, process: ScriptedShell, on_data: OnData) -> None:
        async def output(_: Channel, text: str) -> None:
            await on_data(text.encode())

        super().__init__(process, output)
        self._shell = process

    async def write(self, data: bytes) -> None:
        self._shell.typed.put_nowait(data)

    async def resize(self, size: TerminalSize) -> None:
        pass


class ScriptedFiles:
    def __init__(self, made: Made) -> None:
        self._made = made

    async def write(self, path: str, content: bytes | AsyncIterable[bytes]) -> None:
        pieces = [content] if isinstance(content, bytes) else [piece async for piece in content]
        kind = FileChangeKind.WRITTEN if path in self._made.files else FileChangeKind.CREATED
        self._made.files[path] = b"".join(pieces)
        for watch in self._made.watches:
            if path.startswith(f"{watch.path}/"):
                await watch.on_change(FileChange(path.removeprefix(f"{watch.path}/"), kind))

    async def size(self, path: str) -> int:
        return len(self._content(path))

    async def read(self, path: str) -> AsyncIterator[bytes]:
        yield self._content(path)

    async def watch(self, path: str, *, recursive: bool, on_change: OnChange) -> FileWatch:
        if not any(name.startswith(f"{path}/") for name in self._made.files):
            raise NotFound(f"path {path!r} does not exist")
        return ScriptedWatch(self._made, path, on_change)

    def _content(self, path: str) -> bytes:
        if path not in self._made.files:
            raise NotFound(f"path {path!r} does not exist")
        return self._made.files[path]


class ScriptedWatch:
    def __init__(self, made: Made, path: str, on_change: OnChange) -> None:
        self._made, self.path, self.on_change, self._stopped = made, path, on_change, asyncio.Event()
        made.watches.append(self)

    async def wait(self) -> None:
        await self._stopped.wait()

    async def stop(self) -> None:
        self._made.watches.remove(self)
        self._stopped.set()


def _check_timeout(timeout_s: int) -> None:
    """As strict as real ones."""
    if not isinstance(timeout_s, int) or not 0 < timeout_s <= 7 * 86400:
        raise ProviderRefused(f"{timeout_s!r} is no timeout")


def _running(made: Made, pid: int) -> ScriptedProcess:
    if pid not in made.processes:
        raise NotFound(f"process {pid} does not run")
    return made.processes[pid]
