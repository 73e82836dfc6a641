"""The queue: decides which session starts or resumes next, and starts it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandlot.platform.core.errors import (
    Conflict,
    NotFound,
    PlatformError,
    ProviderFull,
    SandboxGone,
    Unavailable,
)
from sandlot.platform.core.events import SandboxEventType
from sandlot.platform.core.model import ACTIVE, SandboxSpec, Session, SessionLimits, SessionStatus
from sandlot.platform.providers.health import ProviderRegistry
from sandlot.platform.sessions.placement import moved_on
from sandlot.platform.sessions.state import SessionState

log = logging.getLogger(__name__)
PROVIDER_FULL_S = 2.0  # how long a full provider is not asked again
LEASE_MARGIN_S = 60  # a provider's own timeout is later than ours by this much
POLL_S = 1.0
MAX_FAILURES = 1000


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """The position of a session in the queue. Without a reason to wait, it starts next."""

    session: Session
    position: int
    reason: str | None


def queue_order(
    queued: Sequence[Session],
    active: Sequence[Session],
    limits: SessionLimits,
    problem: Callable[[str], str | None] = lambda _: None,
) -> list[QueuePosition]:
    """The queue in order. Fair: users with fewer running sandboxes come first, then by arrival."""
    running = Counter(session.user_id for session in active)
    total, ahead = len(active), Counter[str]()
    keyed: list[tuple[int, datetime, str, Session]] = []
    for session in sorted(queued, key=_arrival):
        rank = running[session.user_id] + ahead[session.user_id]
        ahead[session.user_id] += 1
        keyed.append((rank, *_arrival(session), session))
    positions: list[QueuePosition] = []
    for position, (*_, session) in enumerate(sorted(keyed, key=lambda entry: entry[:3]), start=1):
        reason = problem(session.provider)
        if reason is None and running[session.user_id] >= limits.running_per_user:
            reason = f"this user has {running[session.user_id]} of {limits.running_per_user} sandboxes running"
        if reason is None and total >= limits.running:
            reason = f"all {limits.running} sandboxes of this server are in use"
        if reason is None:
            running[session.user_id] += 1
            total += 1
        positions.append(QueuePosition(session, position, reason))
    return positions


def _arrival(session: Session) -> tuple[datetime, str]:
    return session.queued_at or session.created_at, session.id


def lease_s(session: Session, now: datetime) -> int:
    """The timeout that the provider is given: how long the sandbox runs if this platform stops."""
    left = (session.expires_at - now).total_seconds() if session.expires_at else session.timeout_s
    return max(0, int(left)) + LEASE_MARGIN_S


class Queue:
    def __init__(self, *, state: SessionState, providers: ProviderRegistry, limits: SessionLimits) -> None:
        self._state, self._providers, self._limits = state, providers, limits
        self._work = asyncio.Event()
        self._launching: dict[str, asyncio.Task[None]] = {}
        self._full_until: dict[str, datetime] = {}
        self._failures: dict[str, PlatformError] = {}
        providers.on_recovery.append(self.notify)

    def notify(self) -> None:
        """Something changed: look at the queue again."""
        self._work.set()

    def is_launching(self, session: str) -> bool:
        return session in self._launching

    def failure(self, session: str) -> PlatformError | None:
        """Why a start failed, as it was raised; for whoever waits for it in this process."""
        return self._failures.get(session)

    async def positions(self) -> list[QueuePosition]:
        queued = await self._state.store.query(statuses=[SessionStatus.QUEUED])
        active = await self._state.store.query(statuses=ACTIVE) if queued else ()
        return queue_order(queued, active, self._limits, self.problem)

    async def active(self) -> int:
        """How many sandboxes count against the limits now."""
        return len(await self._state.store.query(statuses=ACTIVE))

    async def position_of(self, session: str) -> QueuePosition | None:
        return next((position for position in await self.positions() if position.session.id == session), None)

    async def run(self) -> None:
        """Start what may start, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._work.wait(), POLL_S)
            self._work.clear()
            try:
                await self.dispatch()
            except Unavailable as error:
                log.error("the queue is blocked: %s", error)
                await asyncio.sleep(POLL_S)

    async def dispatch(self) -> None:
        for position in await self.positions():
            if position.reason is not None:
                await self._start_elsewhere(position.session)
                continue
            resuming = position.session.provider_sandbox_id is not None
            with contextlib.suppress(Conflict):  # cancelled at the same moment
                claimed = await self._state.move(
                    position.session, SessionStatus.RESUMING if resuming else SessionStatus.STARTING
                )
                self._launch(claimed)

    async def _start_elsewhere(self, session: Session) -> None:
        """If its provider is down or full, and another may have it."""
        if self.problem(session.provider) is not None and (changes := moved_on(session, self.problem)):
            log.info("sandbox %s starts at %s: %s", session.id, changes["provider"], self.problem(session.provider))
            with contextlib.suppress(Conflict):
                await self._state.change(session, **changes)
                self.notify()

    async def close(self) -> None:
        """Stop. Starts in flight stay in their state; the next start of the platform finds them at the provider."""
        tasks = list(self._launching.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _launch(self, session: Session) -> None:
        task = asyncio.create_task(self._launch_session(session))
        self._launching[session.id] = task

        def ended(_: asyncio.Task[None]) -> None:
            self._launching.pop(session.id, None)
            self.notify()
            if not task.cancelled() and (error := task.exception()):
                log.error("starting %s failed unexpectedly", session.id, exc_info=error)

        task.add_done_callback(ended)

    async def _launch_session(self, session: Session) -> None:
        try:
            if session.status is SessionStatus.RESUMING:
                await self._resume(session)
            else:
                await self._start(session)
        except Conflict:
            log.info("sandbox %s changed while it was starting", session.id)
        except SandboxGone as error:
            await self._lost(session, error)
        except ProviderFull as error:
            self._full_until[session.provider] = self._state.clock() + timedelta(seconds=PROVIDER_FULL_S)
            await self._requeue(session, error)
        except Unavailable as error:
            await self._requeue(session, error)
        except PlatformError as error:
            await self._failed(session, error)

    async def _start(self, session: Session) -> None:
        now = self._state.clock()
        spec = SandboxSpec(
            session=session.id,
            template=session.template_id,
            timeout_s=lease_s(session, now),
            envs=session.envs,
            metadata=session.metadata,
            network=session.network,
        )
        async with self._providers.calling(session.provider) as provider:
            made = await provider.create(spec)
        now = self._state.clock()
        try:
            await self._state.move(
                session,
                SessionStatus.RUNNING,
                self._state.event(session, SandboxEventType.READY),
                provider_sandbox_id=made,
                envs={},
                started_at=now,
                last_used_at=now,
                expires_at=now + timedelta(seconds=session.timeout_s),
                queued_at=None,
                problem=None,
            )
        except Conflict:  # deleted while it started: the sandbox must go, too
            await self._kill_unwanted(session, made)
            raise

    async def _kill_unwanted(self, session: Session, made: str) -> None:
        async with self._providers.calling(session.provider) as provider:
            await provider.kill(made)
        now = await self._state.store.get(session.id)
        if now is not None and now.status is SessionStatus.DELETING:
            await self._state.move(now, SessionStatus.DELETED, self._state.event(now, SandboxEventType.DELETED))

    async def _resume(self, session: Session) -> None:
        assert session.provider_sandbox_id is not None
        now = self._state.clock()
        expires_at = now + timedelta(seconds=session.timeout_s)
        async with self._providers.calling(session.provider) as provider:
            await provider.connect(session.provider_sandbox_id, session.timeout_s + LEASE_MARGIN_S)
        await self._state.move(
            session,
            SessionStatus.RUNNING,
            self._state.event(session, SandboxEventType.RESUMED),
            expires_at=expires_at,
            last_used_at=self._state.clock(),
            queued_at=None,
            problem=None,
        )

    async def _requeue(self, session: Session, error: PlatformError) -> None:
        changes = moved_on(session, self.problem) or {}
        if changes:
            log.info("sandbox %s starts at %s: %s", session.id, changes["provider"], error)
        with contextlib.suppress(Conflict):
            await self._state.move(session, SessionStatus.QUEUED, **changes, problem=str(error))

    async def _lost(self, session: Session, error: NotFound) -> None:
        """The provider no longer has the paused sandbox."""
        await self._end(session, SessionStatus.DELETED, error)

    async def _failed(self, session: Session, error: PlatformError) -> None:
        if session.status is SessionStatus.RESUMING:  # its state is still there; the next use tries again
            self._remember_failure(session, error)
            with contextlib.suppress(Conflict):
                event = self._state.event(session, SandboxEventType.ERROR, message=str(error))
                await self._state.move(session, SessionStatus.PAUSED, event, queued_at=None, problem=str(error))
            return
        await self._end(session, SessionStatus.FAILED, error)

    async def _end(self, session: Session, to: SessionStatus, error: PlatformError) -> None:
        self._remember_failure(session, error)
        events = [self._state.event(session, SandboxEventType.ERROR, message=str(error))]
        if to is SessionStatus.DELETED:
            events.append(self._state.event(session, SandboxEventType.DELETED, reason="lost at the provider"))
        with contextlib.suppress(Conflict):
            await self._state.move(session, to, *events, problem=str(error))

    def _remember_failure(self, session: Session, error: PlatformError) -> None:
        if len(self._failures) >= MAX_FAILURES:
            self._failures.clear()
        self._failures[session.id] = error

    def problem(self, provider: str) -> str | None:
        """Why a provider cannot be used now: it is down, or full."""
        full = self._full_until.get(provider)
        if full is not None and self._state.clock() < full:
            return f"provider {provider!r} has no room just now"
        return self._providers.problem(provider)
