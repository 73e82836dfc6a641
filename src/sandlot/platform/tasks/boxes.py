"""The sandboxes of tasks: one session for each attempt, found again by its name, held while it is worked in, kept for a while, deleted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field

from sandlot.platform.agents.descriptions import AgentDescription
from sandlot.platform.core.errors import Busy, Conflict, NotFound, PlatformError, SandboxGone, Unavailable
from sandlot.platform.core.model import (
    TERMINAL,
    AgentSettings,
    BoundSecret,
    Caller,
    SandboxNetwork,
    Scope,
    Session,
    SessionStatus,
)
from sandlot.platform.core.ports import Channel
from sandlot.platform.core.tasks import Attempt, Task
from sandlot.platform.sessions.service import SessionRequest, Sessions, SessionTarget
from sandlot.platform.sessions.state import SessionState
from sandlot.platform.tunnel.routes import RouteApp
from sandlot.platform.tunnel.service import Tunnel, Tunnels

log = logging.getLogger(__name__)
START_S = 900.0  # how long a sandbox may wait for room and start
SPARE_S = 1800  # what its timeout has beyond the task's own limit
MAX_OUTPUT = 1 << 20
TOUCH_S = 20.0
TIMED_OUT = 124
TASK_METADATA = "sandlot-task"
MakeRoom = Callable[[Task], Awaitable[bool]]  # whether another sandbox of this task's user was deleted
Isolation = Callable[[str, str | None], Awaitable[str | None]]  # of a sandbox at a provider, where it tells
Routes = Callable[[Task, Attempt], Awaitable[Mapping[str, RouteApp]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a command in a sandbox ended, and the beginning of what it wrote."""

    exit_code: int
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False

    @property
    def is_ok(self) -> bool:
        return self.exit_code == 0

    @property
    def words(self) -> str:
        """What it said, for a person."""
        return (self.stderr.strip() or self.stdout.strip())[-4000:]


class TaskBox:
    """One attempt's sandbox while it is held. Everything raises `SandboxGone` once it is lost."""

    def __init__(self, sessions: Sessions, session: Session) -> None:
        self._sessions, self.session = sessions, session

    async def run(
        self, command: str, *, timeout_s: float = 60.0, cwd: str | None = None, envs: Mapping[str, str] | None = None
    ) -> Ran:
        """Run a short command to its end; what it writes is cut at a limit."""
        kept: dict[Channel, list[str]] = {"stdout": [], "stderr": []}
        size, truncated = 0, False

        async def take(channel: Channel, text: str) -> None:
            nonlocal size, truncated
            room = MAX_OUTPUT - size
            truncated = truncated or len(text) > room
            kept[channel].append(text[:room])
            size += min(len(text), room)

        with _reaching():
            box = await self._sessions.open_box(self.session)
            running = await box.commands.start(command, cwd=cwd, envs=dict(envs or {}), user=None, on_output=take)
            try:
                exit_code = await asyncio.wait_for(running.wait(), timeout_s)
            except TimeoutError:
                with contextlib.suppress(PlatformError):
                    await running.kill()
                exit_code = TIMED_OUT
            except asyncio.CancelledError:
                with contextlib.suppress(PlatformError):
                    await running.detach()
                raise
        return Ran(
            exit_code=exit_code, stdout="".join(kept["stdout"]), stderr="".join(kept["stderr"]), truncated=truncated
        )

    async def write(self, path: str, content: bytes | AsyncIterable[bytes]) -> None:
        with _reaching():
            box = await self._sessions.open_box(self.session)
            await box.files.write(path, content)

    async def read(self, path: str, limit: int) -> AsyncIterator[bytes]:
        """Raises `NotFound`. At most a little more than `limit` bytes."""
        box = await self._sessions.open_box(self.session)
        size = 0
        async for piece in box.files.read(path):
            yield piece
            size += len(piece)
            if size > limit:
                return


@contextlib.contextmanager
def _reaching() -> Iterator[None]:
    """A sandbox that its provider no longer has is gone, however that was found out."""
    try:
        yield
    except SandboxGone:
        raise
    except NotFound as error:
        raise SandboxGone(str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxDefaults:
    """`settings` are the configuration's own for agents: provider, template, variables."""

    settings: Mapping[str, AgentSettings] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret_hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of those that are never inside


class TaskBoxes:
    def __init__(
        self,
        *,
        sessions: Sessions,
        state: SessionState,
        tunnels: Tunnels,
        agents: Mapping[str, AgentDescription],
        defaults: BoxDefaults,
        routes: Routes,
        isolation: Isolation,
    ) -> None:
        self._sessions, self._state, self._tunnels, self._isolation = sessions, state, tunnels, isolation
        self._agents, self._defaults, self._routes = agents, defaults, routes
        self._open: dict[str, Tunnel] = {}
        self.make_room: MakeRoom | None = None  # asked when a user has too many sandboxes

    async def start(self, task: Task, attempt: Attempt) -> Session:
        """The attempt's sandbox, running: found by its name, resumed or created. Safe to repeat.

        Raises `Busy` while there is no room for it, and what a provider answers.
        """
        request = self._request(task, attempt)
        deadline = time.monotonic() + START_S
        try:
            session = await self._sessions.create(_caller(task), request, wait_s=30.0)
        except Busy:
            if self.make_room is None or not await self.make_room(task):
                raise
            session = await self._sessions.create(_caller(task), request, wait_s=30.0)
        while session.status is not SessionStatus.RUNNING:
            if time.monotonic() > deadline:
                raise Busy(f"there was no room for a sandbox within {START_S:.0f} s")
            session = await self._sessions.connect(_target(task, session.id))
        return session

    def _request(self, task: Task, attempt: Attempt) -> SessionRequest:
        agent, spec = self._agents.get(attempt.agent), task.spec
        settings = self._defaults.settings.get(attempt.agent)
        own = settings.template if settings is not None else None
        template = spec.template or own or (agent.task.template if agent is not None and agent.task else None)
        if settings is not None and settings.backend is not None:
            template = spec.template  # what the backend begins with, unless the task says otherwise
        provider = spec.provider
        if task.fork_point is not None and attempt.number > 1:
            template, provider = task.fork_point.snapshot, task.fork_point.provider
        return SessionRequest(
            user_id=task.user_id,
            session_id=session_name(task, attempt.number),
            template_id=template,
            agent_type=attempt.agent if settings is not None else None,
            provider=provider,
            metadata={TASK_METADATA: task.id, "sandlot-attempt": str(attempt.number)},
            network=SandboxNetwork(
                internet=spec.network.internet, allow=spec.network.allow, secrets=tuple(self._bound(task))
            ),
            timeout_s=spec.limits.seconds + SPARE_S,
        )

    def can_share(self, task: Task) -> bool:
        """Whether all attempts would begin with the same template at the same provider."""
        made = {(request.template_id, request.provider) for request in (self._request(task, a) for a in task.attempts)}
        settings = {
            self._defaults.settings[a.agent].provider for a in task.attempts if a.agent in self._defaults.settings
        }
        return len(made) == 1 and (task.spec.provider is not None or len(settings) <= 1)

    @contextlib.asynccontextmanager
    async def held(self, task: Task, session: Session) -> AsyncIterator[TaskBox]:
        """The sandbox for as long as it is worked in: it is not paused for idleness meanwhile."""
        touching = asyncio.ensure_future(self._touch(session.id))
        try:
            async with self._sessions.using(_target(task, session.id)) as handle:
                yield TaskBox(self._sessions, handle.session)
        except SandboxGone:
            raise
        except NotFound as error:
            if await self._is_over(session.id):
                raise SandboxGone(str(error)) from error
            raise
        finally:
            touching.cancel()

    async def _touch(self, session: str) -> None:
        """For other processes, and for the next one: they know of a use only what is stored."""
        while True:
            with contextlib.suppress(PlatformError):
                await self._state.store.touch(session, self._state.clock())
            await asyncio.sleep(TOUCH_S)

    async def connect(self, task: Task, attempt: Attempt, session: Session, *, is_new: bool = False) -> None:
        """Open the tunnel with the task's own routes, and wait until it carries. Raises `SandboxGone`, `Unavailable`.

        `is_new`: no relay runs there yet, as far as we know.
        """
        tunnel = self._open.get(session.id)
        if tunnel is None:
            routes = await self._routes(task, attempt)
            tunnel = await self._tunnels.open(session.id, f"task {task.id}", routes, has_relay=not is_new)
            self._open[session.id] = tunnel
        try:
            await tunnel.ready()
        except NotFound as error:
            self._open.pop(session.id, None)
            raise SandboxGone(str(error)) from error

    async def isolation(self, session: Session) -> str | None:
        """What keeps it apart from its host, where its provider tells."""
        return await self._isolation(session.provider, session.provider_sandbox_id)

    async def is_lost(self, session: str) -> bool:
        """Whether it is really gone, not only paused by its provider."""
        return not await self._sessions.still_exists(session)

    async def disconnect(self, session: str) -> None:
        tunnel = self._open.pop(session, None)
        if tunnel is not None:
            await tunnel.close()

    async def let_go(self, task: Task) -> None:
        """Another process works on it now: our tunnels must not get in its way. The relays stay."""
        for attempt in task.attempts:
            tunnel = self._open.pop(attempt.session or "", None)
            if tunnel is not None:
                await tunnel.close(keep_relay=True)

    async def pause(self, task: Task, attempt: Attempt) -> None:
        """Let it rest; nothing happens if it does, or is gone."""
        if attempt.session is None:
            return
        await self.disconnect(attempt.session)
        session = await self._state.store.get(attempt.session)
        if session is None or session.status is not SessionStatus.RUNNING:
            return
        try:
            await self._sessions.pause(session, "its task rests")
        except (Conflict, Unavailable) as error:  # its timeout pauses it later
            log.info("the sandbox of task %s could not be paused: %s", task.id, error)
        except PlatformError as error:
            log.warning("the sandbox of task %s cannot be paused: %s", task.id, error)

    async def delete(self, task: Task, number: int) -> None:
        """End the sandbox of an attempt, whoever made it; nothing happens if there is none."""
        session = await self._state.store.by_name(task.user_id, session_name(task, number))
        if session is None:
            return
        await self.disconnect(session.id)
        with contextlib.suppress(NotFound):
            await self._sessions.delete(_target(task, session.id))

    async def reach(self, task: Task, attempt: Attempt) -> TaskBox | None:
        """Its sandbox if it runs now; it is not woken."""
        session = await self._state.store.get(attempt.session) if attempt.session is not None else None
        if session is None or session.status is not SessionStatus.RUNNING:
            return None
        return TaskBox(self._sessions, session)

    def secrets(self, task: Task) -> dict[str, str]:
        """What the agent has in place of the secrets that the task asked for, by their names: values, or placeholders."""
        given = {name: self._defaults.secrets[name] for name in task.spec.secrets if name in self._defaults.secrets}
        return {**given, **{bound.name: bound.placeholder for bound in self._bound(task)}}

    def _bound(self, task: Task) -> Iterator[BoundSecret]:
        """Those that leave with requests and are never inside."""
        hosts = self._defaults.secret_hosts
        return (BoundSecret(name=name, hosts=hosts[name]) for name in task.spec.secrets if name in hosts)

    async def _is_over(self, session: str) -> bool:
        found = await self._state.store.get(session)
        return found is None or found.status in TERMINAL or found.status is SessionStatus.DELETING


def session_name(task: Task, number: int) -> str:
    return f"task-{task.id}-{number}"


def _caller(task: Task) -> Caller:
    return Caller(user_id=task.user_id, scopes=frozenset({Scope.READ, Scope.WRITE}))


def _target(task: Task, session: str) -> SessionTarget:
    return SessionTarget(caller=_caller(task), sandbox_id=session)
