"""Sessions: what callers do with their sandboxes as a whole. Whatever is not theirs does not exist for them."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sandlot.platform.core.errors import (
    Busy,
    Conflict,
    InvalidRequest,
    NotFound,
    PlatformError,
    SandboxGone,
    Unavailable,
)
from sandlot.platform.core.model import LIVING, Agent, Caller, Event, EventType, Limits, Session, Status
from sandlot.platform.core.ports import Box
from sandlot.platform.identity.keys import sees, speaks_for
from sandlot.platform.providers.health import Providers
from sandlot.platform.sessions.queue import Place, Queue, lease_s
from sandlot.platform.sessions.state import SessionState

WAIT_S = 30.0  # how long a call waits for its sandbox unless the caller says
TOUCH_S = 2.0
TRIES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """What a caller asks for. What is None is decided by the type of agent, then by the configuration."""

    user_id: str | None
    session_id: str | None = None
    template_id: str | None = None
    agent_type: str | None = None
    provider: str | None = None
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    metadata: Mapping[str, str] = field(default_factory=dict)
    timeout_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    provider: str
    agents: Mapping[str, Agent] = field(default_factory=dict)
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which sandbox a caller means."""

    caller: Caller
    sandbox_id: str
    user_id: str | None = None  # an admin acts for this user only
    wait_s: float = WAIT_S


@dataclass(frozen=True, slots=True)
class Use:
    session: Session
    box: Box


class Sessions:
    def __init__(
        self, *, state: SessionState, queue: Queue, providers: Providers, limits: Limits, defaults: Defaults
    ) -> None:
        self._state, self._queue, self._providers = state, queue, providers
        self._limits, self._defaults = limits, defaults
        self._entrance = asyncio.Lock()
        self._in_use: Counter[str] = Counter()
        self._ending: set[str] = set()
        self._touched: dict[str, float] = {}

    # -- asking for one ---------------------------------------------------------------------------------------------

    async def create(self, caller: Caller, order: SessionRequest, wait_s: float = WAIT_S) -> Session:
        """The caller's sandbox of that name: made if there is none, resumed if it is paused."""
        user_id = speaks_for(caller, order.user_id)
        if order.session_id is not None:
            known = await self._state.store.by_name(user_id, order.session_id)
            if known is not None and known.status is not Status.DELETING:
                return await self._settle(known, wait_s)
        session = await self._enter(user_id, order)
        self._queue.kick()
        return await self._settle(session, wait_s)

    async def _enter(self, user_id: str, order: SessionRequest) -> Session:
        """Put a new session into the queue. One at a time: so nobody slips past a limit, and there is an order of arrival."""
        async with self._entrance:
            session = self._planned(user_id, order)
            await self._check_room(session)
            try:
                await self._state.add(session)
            except Conflict:
                known = await self._state.store.by_name(user_id, session.session_id)
                if known is None or known.status is Status.DELETING:
                    raise Conflict(f"session {session.session_id!r} is just being deleted; try again") from None
                return known
            return session

    async def connect(self, target: Target) -> Session:
        session = await self._settle(await self.find(target), target.wait_s)
        await self._touch(session.id)
        return session

    async def find(self, target: Target) -> Session:
        """Raises `NotFound` for what is not there and for what is not the caller's, in the same words."""
        session = await self._state.store.get(target.sandbox_id)
        is_there = session is not None and session.status is not Status.DELETED
        if session is not None and is_there and sees(target.caller, session.user_id, target.user_id):
            return session
        raise NotFound(f"sandbox {target.sandbox_id[:80]!r} was not found")

    async def list(
        self, caller: Caller, user_id: str | None, limit: int, after: tuple[datetime, str] | None
    ) -> Sequence[Session]:
        owner = user_id if caller.is_admin and user_id is None else speaks_for(caller, user_id)
        return await self._state.store.query(user_id=owner, statuses=LIVING, limit=limit, after=after)

    async def place(self, session: Session) -> Place | None:
        return await self._queue.place(session.id) if session.status is Status.QUEUED else None

    # -- changing it ------------------------------------------------------------------------------------------------

    async def set_timeout(self, target: Target, timeout_s: int) -> Session:
        """It goes on for so long from now."""
        for _ in range(TRIES):
            session = await self.find(target)
            changes: dict[str, object] = {"timeout_s": timeout_s}
            if session.status is Status.RUNNING:
                changes["expires_at"] = self._state.clock() + timedelta(seconds=timeout_s)
            with contextlib.suppress(Conflict):
                session = await self._state.change(session, **changes)
                if session.status is Status.RUNNING and session.provider_sandbox_id is not None:
                    lease = lease_s(session, self._state.clock())
                    async with self._providers.calling(session.provider) as provider:
                        await provider.set_timeout(session.provider_sandbox_id, lease)
                return session
        raise Conflict(f"sandbox {target.sandbox_id!r} keeps changing; try again")

    async def delete(self, target: Target) -> Session:
        """For good. In the queue, this is how to cancel. If the provider does not answer, it is ended later."""
        for _ in range(TRIES):
            session = await self.find(target)
            with contextlib.suppress(Conflict):
                return await self.end(session, "deleted by its user")
        raise Conflict(f"sandbox {target.sandbox_id!r} keeps changing; try again")

    async def end(self, session: Session, reason: str) -> Session:
        """Delete it, whoever asked. Raises `Conflict` if it changed meanwhile."""
        gone = self._state.event(session, EventType.DELETED, reason=reason)
        nothing_there = session.status is Status.QUEUED and session.provider_sandbox_id is None
        if nothing_there or session.status is Status.FAILED:
            ended = await self._state.move(session, Status.DELETED, gone)
        else:
            if session.status is not Status.DELETING:
                session = await self._state.move(session, Status.DELETING)
            ended = await self._kill(session, gone)
        self._touched.pop(session.id, None)
        self._queue.kick()
        return ended

    async def _kill(self, session: Session, gone: Event) -> Session:
        """From deleting to deleted, once; left deleting if the provider does not answer, or if a start still has to notice."""
        if session.provider_sandbox_id is None or session.id in self._ending:
            return session
        self._ending.add(session.id)
        try:
            async with self._providers.calling(session.provider) as provider:
                await provider.kill(session.provider_sandbox_id)
            return await self._state.move(session, Status.DELETED, gone)
        except Unavailable:
            return session
        finally:
            self._ending.discard(session.id)

    async def suspend(self, session: Session, reason: str) -> bool:
        """Pause it, unless it is in use after all. Raises `Unavailable`, `ProviderRefused`."""
        if self.is_in_use(session.id):
            return False
        session = await self._state.move(session, Status.PAUSING)
        if self.is_in_use(session.id):  # somebody came between the look and the move
            await self._state.move(session, Status.RUNNING)
            return False
        assert session.provider_sandbox_id is not None
        try:
            async with self._providers.calling(session.provider) as provider:
                await provider.pause(session.provider_sandbox_id)
        except SandboxGone as error:
            await self.lost(session, str(error))
            return False
        except PlatformError as error:
            await self._state.move(
                session, Status.RUNNING, self._state.event(session, EventType.ERROR, message=str(error))
            )
            raise
        await self._state.move(session, Status.PAUSED, self._state.event(session, EventType.PAUSED, reason=reason))
        self._queue.kick()
        return True

    async def lost(self, session: Session, problem: str) -> None:
        """The provider has it no more."""
        told = self._state.event(session, EventType.ERROR, message=problem)
        gone = self._state.event(session, EventType.DELETED, reason="lost at the provider")
        with contextlib.suppress(Conflict):
            await self._state.move(session, Status.DELETED, told, gone, problem=problem)
        self._queue.kick()

    # -- using it ---------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def using(self, target: Target) -> AsyncIterator[Use]:
        """A running sandbox to act in, resumed if need be, and not paused for idleness meanwhile."""
        session = await self.find(target)
        self._in_use[session.id] += 1
        try:
            session = await self._settle(session, target.wait_s)
            if session.status is not Status.RUNNING:
                raise await self._still_waiting(session)
            await self._touch(session.id)
            yield Use(session, await self.way_in(session))
        finally:
            self._in_use[session.id] -= 1
            if not self._in_use[session.id]:
                del self._in_use[session.id]
            await self._touch(session.id)

    def is_in_use(self, session: str) -> bool:
        return self._in_use[session] > 0

    async def way_in(self, session: Session) -> Box:
        """To act in it without that counting as a use."""
        assert session.provider_sandbox_id is not None
        try:
            async with self._providers.calling(session.provider) as provider:
                return await provider.connect(session.provider_sandbox_id, lease_s(session, self._state.clock()))
        except SandboxGone as error:
            await self.lost(session, str(error))
            raise NotFound(f"sandbox {session.id!r} was ended at its provider; create a new one") from error

    async def _touch(self, session: str) -> None:
        now = time.monotonic()
        if now - self._touched.get(session, -TOUCH_S) >= TOUCH_S:
            self._touched[session] = now
            await self._state.store.touch(session, self._state.clock())

    async def _settle(self, session: Session, wait_s: float) -> Session:
        """Wait until it runs, and ask for its resumption if it is paused; returns it as it is when time is up."""
        deadline = time.monotonic() + wait_s
        asked = False
        while True:
            watch = self._state.watch(session.id)
            session = await self._state.store.get(session.id) or session
            if session.status is Status.RUNNING:
                return session
            if session.status in (Status.DELETING, Status.DELETED, Status.FAILED):
                raise self._queue.failure(session.id) or _over(session)
            if session.status is Status.PAUSED:
                if asked and (failure := self._queue.failure(session.id)):
                    raise failure
                asked = True
                with contextlib.suppress(Conflict):
                    await self._state.move(session, Status.QUEUED, queued_at=self._state.clock())
                self._queue.kick()
                continue
            if session.status is Status.QUEUED and (problem := self._providers.problem(session.provider)):
                await self._step_back(session, problem)
            left = deadline - time.monotonic()
            if left <= 0:
                return session
            await self._state.changed(watch, left)

    async def _step_back(self, session: Session, problem: str) -> None:
        """The provider is down, and somebody waits: tell them, and do nothing behind their back later."""
        with contextlib.suppress(Conflict):
            if session.provider_sandbox_id is not None:
                await self._state.move(session, Status.PAUSED, queued_at=None)
            else:
                gone = self._state.event(session, EventType.DELETED, reason=problem)
                told = self._state.event(session, EventType.ERROR, message=problem)
                await self._state.move(session, Status.DELETED, told, gone, problem=problem)
        self._providers.require(session.provider)  # raises with the time until the next attempt
        raise Unavailable(problem, 1)

    async def _still_waiting(self, session: Session) -> PlatformError:
        place = await self.place(session)
        where = f"position {place.position}: {place.reason}" if place and place.reason else session.status.value
        return Busy(f"sandbox {session.id!r} is not ready yet ({where}); try again")

    # -- planning ---------------------------------------------------------------------------------------------------

    def _planned(self, user_id: str, order: SessionRequest) -> Session:
        agents, now = self._defaults.agents, self._state.clock()
        if order.agent_type is not None and order.agent_type not in agents:
            known = ", ".join(sorted(agents)) or "none"
            raise InvalidRequest(f"agent type {order.agent_type!r} is not in the configuration (known: {known})")
        agent = agents[order.agent_type] if order.agent_type is not None else Agent()
        name = order.provider or agent.provider or self._defaults.provider
        if name not in self._providers.all:
            known = ", ".join(sorted(self._providers.all))
            raise InvalidRequest(f"provider {name!r} is not in the configuration (known: {known})")
        provider = self._providers.all[name]
        return Session(
            id=f"sbx_{secrets.token_hex(16)}",
            user_id=user_id,
            session_id=order.session_id or f"ses_{secrets.token_hex(8)}",
            status=Status.QUEUED,
            provider=name,
            template_id=order.template_id or agent.template or provider.template,
            agent_type=order.agent_type,
            timeout_s=order.timeout_s or agent.timeout_s or provider.timeout_s,
            envs={**self._defaults.envs, **agent.envs, **order.envs},
            metadata=dict(order.metadata),
            created_at=now,
            last_used_at=now,
            queued_at=now,
        )

    async def _check_room(self, session: Session) -> None:
        self._providers.require(session.provider)
        own = await self._state.store.query(user_id=session.user_id, statuses=LIVING)
        if len(own) >= self._limits.sessions_per_user:
            raise Busy(f"this user has {len(own)} sandboxes already, paused ones too; delete one first")
        queued = await self._state.store.query(statuses=[Status.QUEUED])
        if len(queued) >= self._limits.queue_length:
            raise Busy(f"{len(queued)} requests wait already; try again later")


def _over(session: Session) -> PlatformError:
    if session.status is Status.FAILED:
        return Conflict(f"sandbox {session.id!r} failed to start: {session.problem}")
    return NotFound(f"sandbox {session.id!r} was not found")
