"""Commands in sandboxes: to their end, in the background or streamed. Each is logged, and limited in time and output."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from sandlot.platform.core.errors import PlatformError, Unavailable
from sandlot.platform.core.events import SandboxEventType
from sandlot.platform.core.model import CommandOutcome, Session
from sandlot.platform.core.ports import Channel, OnOutput, RunningCommand
from sandlot.platform.sessions.command_log import MAX_SHOWN, CommandLog, new_command_id
from sandlot.platform.sessions.service import SandboxHandle, Sessions, SessionTarget
from sandlot.platform.sessions.state import SessionState

MAX_OUTPUT = 4 << 20  # characters that a foreground command may answer with
TIMED_OUT = 124  # what `timeout` in a shell says
PENDING = 64  # pieces of output that a stream holds for a slow reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    command: str
    cwd: str | None = None
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    user: str | None = None
    timeout_s: float = 300.0


@dataclass(frozen=True, slots=True)
class CommandStarted:
    command_id: str
    pid: int


@dataclass(frozen=True, slots=True)
class CommandOutput:
    channel: Channel
    text: str


@dataclass(frozen=True, slots=True)
class CommandEnded:
    exit_code: int
    timed_out: bool


CommandEvent = CommandStarted | CommandOutput | CommandEnded


class Commands:
    def __init__(self, *, sessions: Sessions, state: SessionState) -> None:
        self._sessions, self._state = sessions, state
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, target: SessionTarget, command: Command) -> CommandOutcome:
        """Run it to its end. What a command writes and how it fails is a result."""
        async with self._sessions.using(target) as handle:
            kept = _OutputBuffer()
            follower = _CommandFollower(self._state, handle.session, command, kept.take)
            running = await follower.start(handle)
            exit_code, timed_out = await follower.end(running, command.timeout_s)
            return kept.outcome(exit_code, timed_out)

    async def background(self, target: SessionTarget, command: Command) -> CommandStarted:
        """Start it and return at once. It does not keep the sandbox from idle pause; see `BackgroundCommands`."""
        async with self._sessions.using(target) as handle:
            follower = _CommandFollower(self._state, handle.session, command, None)
            running = await follower.start(handle)
        self._own(follower.end(running, None))
        return CommandStarted(follower.id, running.pid)

    async def stream(self, target: SessionTarget, command: Command) -> AsyncGenerator[CommandEvent]:
        """Yield its output as it comes. The command goes on if the reader leaves early; its events tell the rest."""
        pieces: asyncio.Queue[CommandEvent | PlatformError] = asyncio.Queue(PENDING)
        gone, begun = asyncio.Event(), asyncio.Event()

        async def pass_on(event: CommandEvent | PlatformError) -> None:
            if not gone.is_set():
                put, left = asyncio.ensure_future(pieces.put(event)), asyncio.ensure_future(gone.wait())
                await asyncio.wait((put, left), return_when=asyncio.FIRST_COMPLETED)
                for waiting in (put, left):
                    waiting.cancel()

        async def take(channel: Channel, text: str) -> None:
            await begun.wait()  # a quick command speaks before we know that it has started
            await pass_on(CommandOutput(channel, text))

        async def follow() -> None:
            try:
                async with self._sessions.using(target) as handle:
                    follower = _CommandFollower(self._state, handle.session, command, take)
                    running = await follower.start(handle)
                    await pass_on(CommandStarted(follower.id, running.pid))
                    begun.set()
                    exit_code, timed_out = await follower.end(running, command.timeout_s)
                    await pass_on(CommandEnded(exit_code, timed_out))
            except PlatformError as error:
                await pass_on(error)
            except asyncio.CancelledError:
                with contextlib.suppress(asyncio.QueueFull):
                    pieces.put_nowait(Unavailable("the platform stops; the command goes on", 1))
                raise

        self._own(follow())
        try:
            while True:
                event = await pieces.get()
                if isinstance(event, PlatformError):
                    raise event
                yield event
                if isinstance(event, CommandEnded):
                    return
        finally:
            gone.set()

    async def close(self) -> None:
        """Stop following; the commands go on in their sandboxes."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _own(self, work: Coroutine[Any, Any, object]) -> None:
        async def guarded() -> None:
            with contextlib.suppress(PlatformError):  # the follower logged it
                await work

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _OutputBuffer:
    """Output as the caller gets it back: the beginning, up to a limit."""

    def __init__(self) -> None:
        self._pieces: list[tuple[Channel, str]] = []
        self._size = 0
        self._truncated = False

    async def take(self, channel: Channel, text: str) -> None:
        room = MAX_OUTPUT - self._size
        if len(text) > room:
            self._truncated = True
            text = text[:room]
        if text:
            self._pieces.append((channel, text))
            self._size += len(text)

    def outcome(self, exit_code: int, timed_out: bool) -> CommandOutcome:
        return CommandOutcome(
            output="".join(text for _, text in self._pieces),
            stdout="".join(text for channel, text in self._pieces if channel == "stdout"),
            stderr="".join(text for channel, text in self._pieces if channel == "stderr"),
            exit_code=exit_code,
            timed_out=timed_out,
            truncated=self._truncated,
        )


class _CommandFollower:
    """One command, from its start to its end, told in events."""

    def __init__(self, state: SessionState, session: Session, command: Command, taker: OnOutput | None) -> None:
        self._command, self._taker = command, taker
        self._log = CommandLog(state, session, new_command_id())
        self.id = self._log.id

    async def start(self, handle: SandboxHandle) -> RunningCommand:
        command = self._command
        running = await handle.box.commands.start(
            command.command, cwd=command.cwd, envs=command.envs, user=command.user, on_output=self._output
        )
        shown = command.command[:MAX_SHOWN]
        await self._log.append(SandboxEventType.COMMAND_STARTED, pid=running.pid, command=shown, cwd=command.cwd)
        self._log.open()
        return running

    async def end(self, running: RunningCommand, timeout_s: float | None) -> tuple[int, bool]:
        """Its exit code, and whether it was ended because it took too long."""
        began, timed_out = time.monotonic(), False
        waiting = asyncio.ensure_future(running.wait())
        waiting.add_done_callback(lambda task: task.cancelled() or task.exception())  # read, even if nobody waits
        try:
            done, _ = await asyncio.wait((waiting,), timeout=timeout_s)
            if not done:
                timed_out = True
                await running.kill()
                await asyncio.wait((waiting,), timeout=10)
            exit_code = TIMED_OUT if timed_out else await waiting
        except PlatformError as error:
            await self._log.flush()
            await self._log.append(SandboxEventType.COMMAND_ENDED, exit_code=None, reason=str(error))
            raise
        except asyncio.CancelledError:
            waiting.cancel()
            await running.detach()
            raise
        finally:
            waiting.cancel()
            self._log.close()
        await self._log.flush()
        seconds = round(time.monotonic() - began, 3)
        await self._log.append(
            SandboxEventType.COMMAND_ENDED, exit_code=exit_code, timed_out=timed_out, pid=running.pid, seconds=seconds
        )
        return exit_code, timed_out

    async def _output(self, channel: Channel, text: str) -> None:
        if self._taker is not None:
            await self._taker(channel, text)
        await self._log.output(channel, text)
