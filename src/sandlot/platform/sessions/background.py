"""Background commands that keep their sandbox awake: stored, followed, and attached to again after a restart."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime

from sandlot.platform.core.errors import Conflict, NotFound, PlatformError, SandboxGone
from sandlot.platform.core.events import SandboxEventType
from sandlot.platform.core.model import (
    COMMAND_MOVES,
    TERMINAL,
    BackgroundCommand,
    CommandStatus,
    Session,
    SessionStatus,
)
from sandlot.platform.core.ports import Box, CommandStore, RunningCommand
from sandlot.platform.events.aggregate import AggregateState
from sandlot.platform.sessions.command_log import MAX_SHOWN, CommandLog, new_command_id
from sandlot.platform.sessions.commands import Command, CommandStarted
from sandlot.platform.sessions.service import SandboxHandle, Sessions, SessionTarget
from sandlot.platform.sessions.state import SessionState

log = logging.getLogger(__name__)
INTERVAL_S = 2.0
UNKNOWN = "it ended while the platform did not follow it; its exit code is not known"


class BackgroundCommands:
    """The row says that a command runs; the connection to it may come and go. Its end is logged once, with the row."""

    def __init__(self, *, store: CommandStore, sessions: Sessions, state: SessionState) -> None:
        self._store, self._sessions, self._state = store, sessions, state
        self._commands: AggregateState[BackgroundCommand, CommandStatus] = AggregateState(
            noun="command", store=store, events=state.events, clock=state.clock, moves=COMMAND_MOVES
        )
        self._logs: dict[str, CommandLog] = {}  # of commands that run: what was logged counts across connections
        self._followed: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, target: SessionTarget, command: Command) -> CommandStarted:
        """Start it and return at once. The sandbox is not paused for idleness while it runs."""
        async with self._sessions.using(target) as handle:
            record, running = await self._start(handle, command)
        self._follow(record, running)
        return CommandStarted(record.id, record.pid)

    async def keeps_awake(self, sandbox_id: str) -> bool:
        """Whether a command runs there that somebody registered."""
        return bool(await self._store.running(sandbox_id))

    async def run(self, interval_s: float = INTERVAL_S) -> None:
        while True:
            try:
                await self.reconcile()
            except PlatformError as error:
                log.error("could not look at the background commands: %s", error)
            await asyncio.sleep(interval_s)

    async def reconcile(self) -> None:
        """Attach to commands that nobody follows, and end those whose sandbox has ended."""
        for record in await self._store.running():
            if record.id in self._followed:
                continue
            session = await self._state.store.get(record.sandbox_id)
            if session is None or session.status in TERMINAL:
                await self._end(record, problem="its sandbox has ended")
            elif session.status is SessionStatus.RUNNING:
                await self._attach(record, session)

    async def purge(self, ended_before: datetime) -> int:
        return await self._store.purge(ended_before)

    async def close(self) -> None:
        """Stop following; the commands go on in their sandboxes."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _start(self, handle: SandboxHandle, command: Command) -> tuple[BackgroundCommand, RunningCommand]:
        session, command_log = handle.session, CommandLog(self._state, handle.session, new_command_id())
        running = await handle.box.commands.start(
            command.command, cwd=command.cwd, envs=command.envs, user=command.user, on_output=command_log.output
        )
        record = BackgroundCommand(
            id=command_log.id,
            user_id=session.user_id,
            sandbox_id=session.id,
            session_id=session.session_id,
            pid=running.pid,
            command=command.command[:MAX_SHOWN],
            status=CommandStatus.RUNNING,
            started_at=self._state.clock(),
        )
        started = command_log.event(
            SandboxEventType.COMMAND_STARTED,
            pid=running.pid,
            command=record.command,
            cwd=command.cwd,
            keep_awake=True,
        )
        self._followed.add(record.id)  # before `reconcile` can see the row
        try:
            await self._commands.add(record, started)
        except BaseException:
            self._followed.discard(record.id)
            await running.kill()
            raise
        self._logs[record.id] = command_log
        command_log.open()
        return record, running

    async def _attach(self, record: BackgroundCommand, session: Session) -> None:
        command_log = self._logs.get(record.id)
        if command_log is None:
            command_log = self._logs[record.id] = CommandLog(self._state, session, record.id)
            command_log.open()
        try:
            running = await _attach_to(await self._sessions.open_box(session), record, command_log)
        except PlatformError as error:  # it may be a matter of time
            log.info("could not attach to command %s in sandbox %s: %s", record.id, session.id, error)
            return
        if running is None:
            await self._end(record, problem=UNKNOWN)
            return
        log.info("attached to command %s in sandbox %s", record.id, session.id)
        self._follow(record, running)

    def _follow(self, record: BackgroundCommand, running: RunningCommand) -> None:
        self._followed.add(record.id)
        task = asyncio.create_task(self._until_ended(record, running))
        self._tasks.add(task)

        def done(_: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._followed.discard(record.id)
            if not task.cancelled() and (error := task.exception()):
                log.error("following command %s failed unexpectedly", record.id, exc_info=error)

        task.add_done_callback(done)

    async def _until_ended(self, record: BackgroundCommand, running: RunningCommand) -> None:
        command_log = self._logs[record.id]
        try:
            exit_code = await running.wait()
        except PlatformError as error:  # the connection is lost, not the command: `reconcile` attaches again
            log.info("lost the connection to command %s: %s", record.id, error)
            return
        except asyncio.CancelledError:
            await running.detach()
            command_log.close()
            raise
        await self._end(record, exit_code=exit_code)

    async def _end(
        self, record: BackgroundCommand, *, exit_code: int | None = None, problem: str | None = None
    ) -> None:
        command_log, now = self._logs.pop(record.id, None), self._state.clock()
        if command_log is not None:
            command_log.close()
            await command_log.flush()
        session = await self._state.store.get(record.sandbox_id)
        ended = (
            (
                self._state.event(
                    session,
                    SandboxEventType.COMMAND_ENDED,
                    command_id=record.id,
                    exit_code=exit_code,
                    timed_out=False,
                    pid=record.pid,
                    seconds=round((now - record.started_at).total_seconds(), 3),
                    reason=problem,
                ),
            )
            if session is not None
            else ()
        )  # purged long ago, and its events with it
        try:
            await self._commands.move(
                record, CommandStatus.ENDED, *ended, ended_at=now, exit_code=exit_code, problem=problem
            )
        except Conflict:
            log.debug("the end of command %s is logged already", record.id)
        except PlatformError as error:  # the row still says that it runs: `reconcile` tries again
            log.warning("the end of command %s could not be stored: %s", record.id, error)


async def _attach_to(box: Box, record: BackgroundCommand, command_log: CommandLog) -> RunningCommand | None:
    """None if it does not run any more. The pid may belong to another process by now: the command tells."""
    for process in await box.commands.processes():
        if process.pid == record.pid and process.command[:MAX_SHOWN] != record.command:
            return None
    try:
        return await box.commands.attach(record.pid, command_log.output)
    except SandboxGone:
        raise
    except NotFound:
        return None
