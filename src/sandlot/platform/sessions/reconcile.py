"""SessionReconciler: compares the state with what providers really have; adopts what is ours, removes what nobody knows, says so in the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sandlot.platform.core.errors import Conflict, PlatformError
from sandlot.platform.core.events import SandboxEventType
from sandlot.platform.core.model import LIVE, ProviderSandbox, Session, SessionStatus
from sandlot.platform.providers.health import ProviderRegistry
from sandlot.platform.sessions.queue import Queue
from sandlot.platform.sessions.service import Sessions
from sandlot.platform.sessions.state import SessionState

log = logging.getLogger(__name__)
INTERVAL_S = 30.0
_STABLE = frozenset({SessionStatus.RUNNING, SessionStatus.PAUSED})
_TRANSITIONAL = frozenset({SessionStatus.STARTING, SessionStatus.RESUMING, SessionStatus.PAUSING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Where the state and one provider disagree."""

    strays: Sequence[ProviderSandbox] = ()  # sandboxes that no living session owns
    missing: Sequence[Session] = ()  # sessions whose sandbox was not listed
    moved: Sequence[tuple[Session, ProviderSandbox]] = ()  # paused or resumed without us


def drift(sessions: Sequence[Session], found: Sequence[ProviderSandbox]) -> Drift:
    """Compare. A session that is on its way from one state to another is neither here nor there."""
    living = {session.id: session for session in sessions}
    by_id = {one.id: one for one in found}
    strays = [one for one in found if not _owns(living.get(one.session), one)]
    settled = [session for session in sessions if session.status in _STABLE]
    missing = [session for session in settled if session.provider_sandbox_id not in by_id]
    moved = [
        (session, one)
        for session in settled
        if (one := by_id.get(session.provider_sandbox_id or "")) is not None
        and one.is_paused != (session.status is SessionStatus.PAUSED)
    ]
    return Drift(strays=strays, missing=missing, moved=moved)


def _owns(session: Session | None, one: ProviderSandbox) -> bool:
    if session is None:
        return False
    return session.provider_sandbox_id == one.id or (
        session.provider_sandbox_id is None
        and session.status in (SessionStatus.STARTING, SessionStatus.QUEUED, SessionStatus.DELETING)
    )


class SessionReconciler:
    def __init__(self, *, state: SessionState, sessions: Sessions, queue: Queue, providers: ProviderRegistry) -> None:
        self._state, self._sessions, self._queue, self._providers = state, sessions, queue, providers
        self._unfinished: set[str] = set()  # providers that an earlier run's work was not compared with yet
        self._interrupted: set[tuple[str, int]] = set()  # sessions that run left between two states, as they were

    async def at_start(self) -> None:
        """What an earlier run left between two states is decided, provider by provider, as soon as each answers."""
        self._unfinished = set(self._providers.all)
        between = await self._state.store.query(statuses=_TRANSITIONAL)
        self._interrupted = {(session.id, session.revision) for session in between}
        await self.reconcile()

    async def run(self, interval_s: float = INTERVAL_S) -> None:
        while True:
            await asyncio.sleep(1.0 if self._unfinished else interval_s)
            try:
                await self.reconcile()
            except PlatformError as error:
                log.error("could not compare the state with the providers: %s", error)

    async def reconcile(self) -> None:
        for name in self._providers.all:
            try:
                await self._compare(name)
            except PlatformError as error:
                log.warning("could not compare the state with provider %s: %s", name, error)

    async def _compare(self, name: str) -> None:
        # Rows after machines: whatever is in the list already had its row when the list was made.
        async with self._providers.calling(name) as provider:
            found = await provider.inventory()
        rows = [row for row in await self._state.store.query(statuses=LIVE) if row.provider == name]
        if name in self._unfinished:
            await self._finish_moves(rows, {one.session: one for one in found})
            self._unfinished.discard(name)
            rows = [row for row in await self._state.store.query(statuses=LIVE) if row.provider == name]
        difference = drift(rows, found)
        for one in difference.strays:
            await self._remove(name, one)
        for session in difference.missing:
            await self._confirm_missing(session)
        for session, one in difference.moved:
            await self._adopt_provider_state(session, one)
        await self._finish_deletions(rows, {one.session: one for one in found})

    async def _finish_moves(self, rows: Sequence[Session], found: Mapping[str, ProviderSandbox]) -> None:
        for session in rows:
            if (session.id, session.revision) in self._interrupted:
                with contextlib.suppress(Conflict):
                    await self._resolve(session, found.get(session.id))
        self._queue.notify()

    async def _resolve(self, session: Session, one: ProviderSandbox | None) -> None:
        now = self._state.clock()
        if one is None and session.provider_sandbox_id is None:
            log.warning("sandbox %s was being started when the platform stopped; it starts again", session.id)
            await self._state.move(session, SessionStatus.QUEUED)
        elif one is None:
            await self._sessions.mark_lost(session, f"provider {session.provider!r} has this sandbox no more")
        elif session.status is SessionStatus.STARTING:
            log.warning("sandbox %s was made as the platform stopped; adopted", session.id)
            await self._state.move(
                session,
                SessionStatus.RUNNING,
                self._state.event(session, SandboxEventType.READY),
                provider_sandbox_id=one.id,
                envs={},
                started_at=now,
                last_used_at=now,
                expires_at=now + timedelta(seconds=session.timeout_s),
                queued_at=None,
                problem=None,
            )
        else:
            to, kind = _state_of(one)
            log.warning("sandbox %s was %s when the platform stopped; it is %s", session.id, session.status, to)
            await self._state.move(session, to, self._state.event(session, kind), queued_at=None)

    async def _remove(self, provider: str, one: ProviderSandbox) -> None:
        row = await self._state.store.get(one.session)
        if row is not None and _owns(row, one):  # it came to be while we looked
            return
        log.warning("sandbox %s at provider %s belongs to no session; removed", one.id, provider)
        async with self._providers.calling(provider) as calling:
            await calling.kill(one.id)

    async def _confirm_missing(self, session: Session) -> None:
        """A list may leave out what is just changing: only a direct question counts."""
        assert session.provider_sandbox_id is not None
        async with self._providers.calling(session.provider) as provider:
            found = await provider.find(session.provider_sandbox_id)
        if found is None:
            log.warning("sandbox %s is gone from provider %s", session.id, session.provider)
            await self._sessions.mark_lost(session, f"provider {session.provider!r} has this sandbox no more")

    async def _adopt_provider_state(self, session: Session, one: ProviderSandbox) -> None:
        if self._sessions.is_in_use(session.id):
            return
        async with self._providers.calling(session.provider) as provider:
            now = await provider.find(one.id)
        current = await self._state.store.get(session.id)
        if now is None or current is None or current.revision != session.revision:
            return
        to, kind = _state_of(now)
        if to is session.status:
            return
        log.info("sandbox %s became %s at provider %s", session.id, to, session.provider)
        changes = {} if to is SessionStatus.PAUSED else {"last_used_at": self._state.clock()}
        with contextlib.suppress(Conflict):
            event = self._state.event(session, kind, reason="at the provider")
            await self._state.move(session, to, event, **changes)
        self._queue.notify()

    async def _finish_deletions(self, rows: Sequence[Session], found: Mapping[str, ProviderSandbox]) -> None:
        """Deleted while it was being started, by a run that ended before it could clean up."""
        for session in rows:
            waiting = session.status is SessionStatus.DELETING and session.provider_sandbox_id is None
            if not waiting or self._queue.is_launching(session.id):
                continue
            if one := found.get(session.id):
                log.warning("sandbox %s was deleted while it started; removed", session.id)
                async with self._providers.calling(session.provider) as provider:
                    await provider.kill(one.id)
            with contextlib.suppress(Conflict):
                gone = self._state.event(session, SandboxEventType.DELETED, reason="deleted by its user")
                await self._state.move(session, SessionStatus.DELETED, gone)


def _state_of(one: ProviderSandbox) -> tuple[SessionStatus, SandboxEventType]:
    return (
        (SessionStatus.PAUSED, SandboxEventType.PAUSED)
        if one.is_paused
        else (SessionStatus.RUNNING, SandboxEventType.RESUMED)
    )
