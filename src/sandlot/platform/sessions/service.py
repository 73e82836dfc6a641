"""Sessions: create, find, use, pause and delete sandboxes for users. What belongs to another user is not found."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sandlot.platform.core.backends import Backend, Capability
from sandlot.platform.core.errors import (
    Busy,
    Conflict,
    InvalidRequest,
    NotFound,
    PlatformError,
    SandboxGone,
    Unavailable,
)
from sandlot.platform.core.events import Event, SandboxEventType
from sandlot.platform.core.model import (
    LIVE,
    AgentSettings,
    Caller,
    SandboxNetwork,
    Scope,
    Session,
    SessionLimits,
    SessionStatus,
)
from sandlot.platform.core.ports import Box
from sandlot.platform.identity.keys import acting_user, may_see, require
from sandlot.platform.providers.health import ProviderRegistry
from sandlot.platform.sessions.placement import Wish, place
from sandlot.platform.sessions.queue import Queue, QueuePosition, lease_s
from sandlot.platform.sessions.state import SessionState

WAIT_S = 30.0  # how long a call waits for its sandbox by default
TOUCH_S = 2.0
TRIES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """What a caller asks for. The agent type and then the configuration decide what is None."""

    user_id: str | None
    session_id: str | None = None
    template_id: str | None = None
    agent_type: str | None = None
    provider: str | None = None
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    metadata: Mapping[str, str] = field(default_factory=dict)
    network: SandboxNetwork = field(default_factory=SandboxNetwork)
    timeout_s: int | None = None
    backend: str | None = None
    capabilities: frozenset[Capability] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDefaults:
    provider: str
    backends: Mapping[str, Backend] = field(default_factory=dict)
    agents: Mapping[str, AgentSettings] = field(default_factory=dict)
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTarget:
    """Which sandbox a caller means."""

    caller: Caller
    sandbox_id: str
    user_id: str | None = None  # an admin acts for this user only
    wait_s: float = WAIT_S


@dataclass(frozen=True, slots=True)
class SandboxHandle:
    session: Session
    box: Box


class Sessions:
    def __init__(
        self,
        *,
        state: SessionState,
        queue: Queue,
        providers: ProviderRegistry,
        limits: SessionLimits,
        defaults: SessionDefaults,
    ) -> None:
        self._state, self._queue, self._providers = state, queue, providers
        self._limits, self._defaults = limits, defaults
        self._admission = asyncio.Lock()
        self._in_use: Counter[str] = Counter()
        self._ending: set[str] = set()
        self._touched: dict[str, float] = {}

    # -- creating and finding ---------------------------------------------------------------------------------------------

    async def create(self, caller: Caller, request: SessionRequest, wait_s: float = WAIT_S) -> Session:
        """The caller's sandbox of that name: created if there is none, for keys that may write; resumed if it is paused."""
        user_id = acting_user(caller, request.user_id)
        if request.session_id is not None:
            known = await self._state.store.by_name(user_id, request.session_id)
            if known is not None and known.status is not SessionStatus.DELETING:
                return await self._until_running(known, wait_s)
        require(caller, Scope.WRITE)
        session = await self._enqueue(user_id, request)
        self._queue.notify()
        return await self._until_running(session, wait_s)

    async def _enqueue(self, user_id: str, request: SessionRequest) -> Session:
        """Put a new session into the queue. One at a time, so that limits hold and there is an order of arrival."""
        async with self._admission:
            session = self._new_session(user_id, request)
            await self._check_limits(session)
            try:
                await self._state.create(session)
            except Conflict:
                known = await self._state.store.by_name(user_id, session.session_id)
                if known is None or known.status is SessionStatus.DELETING:
                    raise Conflict(f"session {session.session_id!r} is just being deleted; try again") from None
                return known
            return session

    async def connect(self, target: SessionTarget) -> Session:
        session = await self._until_running(await self.find(target), target.wait_s)
        await self._touch(session.id)
        return session

    async def find(self, target: SessionTarget) -> Session:
        """Raises `NotFound`, with the same message if it does not exist and if it belongs to another user."""
        session = await self._state.store.get(target.sandbox_id)
        is_there = session is not None and session.status is not SessionStatus.DELETED
        if session is not None and is_there and may_see(target.caller, session.user_id, target.user_id):
            return session
        raise NotFound(f"sandbox {target.sandbox_id[:80]!r} was not found")

    async def list(
        self, caller: Caller, user_id: str | None, limit: int, after: tuple[datetime, str] | None
    ) -> Sequence[Session]:
        owner = user_id if caller.is_admin and user_id is None else acting_user(caller, user_id)
        return await self._state.store.query(user_id=owner, statuses=LIVE, limit=limit, after=after)

    async def queue_position(self, session: Session) -> QueuePosition | None:
        return await self._queue.position_of(session.id) if session.status is SessionStatus.QUEUED else None

    def backends(self) -> Sequence[tuple[Backend, str | None]]:
        """Those of the configuration, with what keeps their providers from being used now."""
        found = sorted(self._defaults.backends.values(), key=lambda backend: backend.name)
        return [(backend, self._queue.problem(backend.provider)) for backend in found]

    # -- changing ---------------------------------------------------------------------------------------------------

    async def set_timeout(self, target: SessionTarget, timeout_s: int) -> Session:
        """Set how long it runs from now."""
        for _ in range(TRIES):
            session = await self.find(target)
            changes: dict[str, object] = {"timeout_s": timeout_s}
            if session.status is SessionStatus.RUNNING:
                changes["expires_at"] = self._state.clock() + timedelta(seconds=timeout_s)
            with contextlib.suppress(Conflict):
                session = await self._state.change(session, **changes)
                if session.status is SessionStatus.RUNNING and session.provider_sandbox_id is not None:
                    lease = lease_s(session, self._state.clock())
                    async with self._providers.calling(session.provider) as provider:
                        await provider.set_timeout(session.provider_sandbox_id, lease)
                return session
        raise Conflict(f"sandbox {target.sandbox_id!r} keeps changing; try again")

    async def delete(self, target: SessionTarget) -> Session:
        """Delete it; while it is queued, cancel it. If the provider does not answer, it is deleted later."""
        for _ in range(TRIES):
            session = await self.find(target)
            with contextlib.suppress(Conflict):
                return await self.end(session, "deleted by its user")
        raise Conflict(f"sandbox {target.sandbox_id!r} keeps changing; try again")

    async def end(self, session: Session, reason: str) -> Session:
        """Delete it, whoever asked. Raises `Conflict` if it changed meanwhile."""
        gone = self._state.event(session, SandboxEventType.DELETED, reason=reason)
        nothing_there = session.status is SessionStatus.QUEUED and session.provider_sandbox_id is None
        if nothing_there or session.status is SessionStatus.FAILED:
            ended = await self._state.move(session, SessionStatus.DELETED, gone)
        else:
            if session.status is not SessionStatus.DELETING:
                session = await self._state.move(session, SessionStatus.DELETING)
            ended = await self._kill(session, gone)
        self._touched.pop(session.id, None)
        self._queue.notify()
        return ended

    async def _kill(self, session: Session, gone: Event) -> Session:
        """From deleting to deleted, once. It stays deleting if the provider does not answer, or while a start is in flight."""
        if session.provider_sandbox_id is None or session.id in self._ending:
            return session
        self._ending.add(session.id)
        try:
            async with self._providers.calling(session.provider) as provider:
                await provider.kill(session.provider_sandbox_id)
            return await self._state.move(session, SessionStatus.DELETED, gone)
        except Unavailable:
            return session
        finally:
            self._ending.discard(session.id)

    async def pause(
        self, session: Session, reason: str, unless: Callable[[str], Awaitable[bool]] | None = None
    ) -> bool:
        """Pause it, unless it is in use, or `unless` says so. Raises `Unavailable`, `ProviderRefused`."""
        if self.is_in_use(session.id):
            return False
        session = await self._state.move(session, SessionStatus.PAUSING)
        # Asked again after the move: what began before it must count, and nothing begins after it.
        if self.is_in_use(session.id) or (unless is not None and await unless(session.id)):
            await self._state.move(session, SessionStatus.RUNNING)
            return False
        assert session.provider_sandbox_id is not None
        try:
            async with self._providers.calling(session.provider) as provider:
                await provider.pause(session.provider_sandbox_id)
        except SandboxGone as error:
            await self.mark_lost(session, str(error))
            return False
        except PlatformError as error:
            await self._state.move(
                session, SessionStatus.RUNNING, self._state.event(session, SandboxEventType.ERROR, message=str(error))
            )
            raise
        await self._state.move(
            session, SessionStatus.PAUSED, self._state.event(session, SandboxEventType.PAUSED, reason=reason)
        )
        self._queue.notify()
        return True

    async def mark_lost(self, session: Session, problem: str) -> None:
        """Record that the provider no longer has it."""
        told = self._state.event(session, SandboxEventType.ERROR, message=problem)
        gone = self._state.event(session, SandboxEventType.DELETED, reason="lost at the provider")
        with contextlib.suppress(Conflict):
            await self._state.move(session, SessionStatus.DELETED, told, gone, problem=problem)
        self._queue.notify()

    # -- using ------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def using(self, target: SessionTarget) -> AsyncIterator[SandboxHandle]:
        """A running sandbox to act in. It is resumed if it is paused, and not paused for idleness in the block."""
        session = await self.find(target)
        self._in_use[session.id] += 1
        try:
            session = await self._until_running(session, target.wait_s)
            if session.status is not SessionStatus.RUNNING:
                raise await self._not_ready(session)
            await self._touch(session.id)
            yield SandboxHandle(session, await self.open_box(session))
        finally:
            self._in_use[session.id] -= 1
            if not self._in_use[session.id]:
                del self._in_use[session.id]
            await self._touch(session.id)

    def is_in_use(self, session: str) -> bool:
        return self._in_use[session] > 0

    async def open_box(self, session: Session) -> Box:
        """Connect to it without counting as a use."""
        assert session.provider_sandbox_id is not None
        try:
            async with self._providers.calling(session.provider) as provider:
                return await provider.connect(session.provider_sandbox_id, lease_s(session, self._state.clock()))
        except SandboxGone as error:
            await self.mark_lost(session, str(error))
            raise NotFound(f"sandbox {session.id!r} was ended at its provider; create a new one") from error

    async def running_box(self, sandbox_id: str) -> Box | None:
        """A sandbox to act in, if it runs; None if it does not now: it is not woken. Raises `NotFound` if it has ended."""
        session = await self._state.store.get(sandbox_id)
        if session is None or session.status not in LIVE:
            raise NotFound(f"sandbox {sandbox_id!r} does not exist any more")
        if session.status is not SessionStatus.RUNNING or session.provider_sandbox_id is None:
            return None
        async with self._providers.calling(session.provider) as provider:
            found = await provider.find(session.provider_sandbox_id)
        return await self.open_box(session) if found is not None and not found.is_paused else None

    async def still_exists(self, sandbox_id: str) -> bool:
        """Whether its provider has it, running or paused; if it does not, that is noted. Raises `Unavailable`."""
        session = await self._state.store.get(sandbox_id)
        if session is None or session.status not in LIVE or session.provider_sandbox_id is None:
            return False
        async with self._providers.calling(session.provider) as provider:
            found = await provider.find(session.provider_sandbox_id)
        if found is None:
            await self.mark_lost(session, f"provider {session.provider!r} has this sandbox no more")
        return found is not None

    async def _touch(self, session: str) -> None:
        now = time.monotonic()
        if now - self._touched.get(session, -TOUCH_S) >= TOUCH_S:
            self._touched[session] = now
            await self._state.store.touch(session, self._state.clock())

    async def _until_running(self, session: Session, wait_s: float) -> Session:
        """Wait until it runs; queue it for resumption if it is paused. Returns it as it is after `wait_s`."""
        deadline = time.monotonic() + wait_s
        asked = False
        while True:
            watch = self._state.watch(session.id)
            session = await self._state.store.get(session.id) or session
            if session.status is SessionStatus.RUNNING:
                return session
            if session.status in (SessionStatus.DELETING, SessionStatus.DELETED, SessionStatus.FAILED):
                raise self._queue.failure(session.id) or _ended_error(session)
            if session.status is SessionStatus.PAUSED:
                if asked and (failure := self._queue.failure(session.id)):
                    raise failure
                asked = True
                with contextlib.suppress(Conflict):
                    await self._state.move(session, SessionStatus.QUEUED, queued_at=self._state.clock())
                self._queue.notify()
                continue
            if session.status is SessionStatus.QUEUED and (problem := self._providers.problem(session.provider)):
                await self._withdraw(session, problem)
            left = deadline - time.monotonic()
            if left <= 0:
                return session
            await self._state.changed(watch, left)

    async def _withdraw(self, session: Session, problem: str) -> None:
        """Withdraw a queued request because its provider is down. Raises `Unavailable`."""
        with contextlib.suppress(Conflict):
            if session.provider_sandbox_id is not None:
                await self._state.move(session, SessionStatus.PAUSED, queued_at=None)
            else:
                gone = self._state.event(session, SandboxEventType.DELETED, reason=problem)
                told = self._state.event(session, SandboxEventType.ERROR, message=problem)
                await self._state.move(session, SessionStatus.DELETED, told, gone, problem=problem)
        self._providers.require(session.provider)  # raises with the time until the next attempt
        raise Unavailable(problem, 1)

    async def _not_ready(self, session: Session) -> PlatformError:
        position = await self.queue_position(session)
        where = (
            f"position {position.position}: {position.reason}" if position and position.reason else session.status.value
        )
        return Busy(f"sandbox {session.id!r} is not ready yet ({where}); try again")

    # -- planning ---------------------------------------------------------------------------------------------------

    def _new_session(self, user_id: str, request: SessionRequest) -> Session:
        agents, now = self._defaults.agents, self._state.clock()
        if request.agent_type is not None and request.agent_type not in agents:
            known = ", ".join(sorted(agents)) or "none"
            raise InvalidRequest(f"agent type {request.agent_type!r} is not in the configuration (known: {known})")
        agent = agents[request.agent_type] if request.agent_type is not None else AgentSettings()
        start, *alternatives = place(
            Wish(
                backend=request.backend,
                provider=request.provider,
                template=request.template_id,
                capabilities=request.capabilities,
            ),
            agent,
            backends=self._defaults.backends,
            providers=self._providers.all,
            default=self._defaults.provider,
            problem=self._queue.problem,
        )
        return Session(
            id=f"sbx_{secrets.token_hex(16)}",
            user_id=user_id,
            session_id=request.session_id or f"ses_{secrets.token_hex(8)}",
            status=SessionStatus.QUEUED,
            provider=start.provider,
            template_id=start.template,
            backend=start.backend,
            alternatives=tuple(alternatives),
            agent_type=request.agent_type,
            timeout_s=request.timeout_s or agent.timeout_s or self._providers.all[start.provider].timeout_s,
            envs={**self._defaults.envs, **agent.envs, **request.envs},
            metadata=dict(request.metadata),
            network=request.network,
            created_at=now,
            last_used_at=now,
            queued_at=now,
        )

    async def _check_limits(self, session: Session) -> None:
        self._providers.require(session.provider)
        own = await self._state.store.query(user_id=session.user_id, statuses=LIVE)
        if len(own) >= self._limits.sessions_per_user:
            raise Busy(f"this user has {len(own)} sandboxes already, paused ones too; delete one first")
        queued = await self._state.store.query(statuses=[SessionStatus.QUEUED])
        if len(queued) >= self._limits.queue_length:
            raise Busy(f"{len(queued)} requests wait already; try again later")


def _ended_error(session: Session) -> PlatformError:
    if session.status is SessionStatus.FAILED:
        return Conflict(f"sandbox {session.id!r} failed to start: {session.problem}")
    return NotFound(f"sandbox {session.id!r} was not found")
