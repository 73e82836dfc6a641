"""Providers that follow a script; the plain one passes the same contract as the real ones."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sandlot.platform.core.errors import NotFound, SandboxGone, Unavailable
from sandlot.platform.core.model import ProviderSandbox, SandboxSpec
from sandlot.platform.core.ports import Box, OnOutput, RunningCommand


@dataclass
class Made:
    """A sandbox that exists only here."""

    sandbox: ProviderSandbox
    spec: SandboxSpec
    files: dict[str, bytes] = field(default_factory=dict)


class ScriptedProvider:
    """Sandboxes in memory. A test can take it down, hold its starts, and look at what it has."""

    template: str | None = None
    timeout_s = 3600

    def __init__(self, name: str = "scripted") -> None:
        self.name = name
        self.made: dict[str, Made] = {}
        self.started: list[str] = []  # sessions, in the order in which they were asked for
        self.most_running = 0
        self.is_down = False
        self.go = asyncio.Event()
        self.go.set()

    async def create(self, spec: SandboxSpec) -> str:
        self._answer()
        for known in self.made.values():
            if known.spec.session == spec.session:
                return known.sandbox.id
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
        made.sandbox = replace(made.sandbox, is_paused=False)
        return ScriptedBox(made)

    async def pause(self, sandbox_id: str) -> None:
        made = self._find(sandbox_id)
        made.sandbox = replace(made.sandbox, is_paused=True)

    async def kill(self, sandbox_id: str) -> None:
        self._answer()
        self.made.pop(sandbox_id, None)

    async def set_timeout(self, sandbox_id: str, timeout_s: int) -> None:
        self._find(sandbox_id)

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

    def _answer(self) -> None:
        if self.is_down:
            raise Unavailable("the scripted provider is down")


class ScriptedBox:
    """Understands `echo words`, `flood characters`, `sleep seconds` and `exit code`."""

    def __init__(self, made: Made) -> None:
        self._made = made

    async def start(
        self, command: str, *, cwd: str | None, envs: Mapping[str, str], user: str | None, on_output: OnOutput
    ) -> RunningCommand:
        return ScriptedCommand(command, on_output)

    async def write(self, path: str, content: bytes | AsyncIterable[bytes]) -> None:
        pieces = [content] if isinstance(content, bytes) else [piece async for piece in content]
        self._made.files[path] = b"".join(pieces)

    async def size(self, path: str) -> int:
        return len(self._content(path))

    async def read(self, path: str) -> AsyncIterator[bytes]:
        yield self._content(path)

    def url(self, port: int) -> str:
        return f"http://{port}-{self._made.sandbox.id}.scripted"

    def _content(self, path: str) -> bytes:
        if path not in self._made.files:
            raise NotFound(f"path {path!r} does not exist")
        return self._made.files[path]


class ScriptedCommand:
    pid = 7

    def __init__(self, command: str, on_output: OnOutput) -> None:
        self._command, self._on_output, self._killed = command, on_output, asyncio.Event()

    async def wait(self) -> int:
        for part in self._command.split(";"):
            name, *words = shlex.split(part)
            if name == "echo":
                await self._on_output("stdout", " ".join(words) + "\n")
            elif name == "sleep":
                try:
                    await asyncio.wait_for(self._killed.wait(), float(words[0]))
                    return 137
                except TimeoutError:
                    continue
            elif name == "flood":
                await self._on_output("stdout", "x" * int(words[0]))
            elif name == "exit":
                return int(words[0])
        return 0

    async def kill(self) -> None:
        self._killed.set()
