"""Reconciliation: compares sessions with the sandboxes that providers have; adopts what is ours and removes strays."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sandlot.platform.core.console import Inspectable, Remembering
from sandlot.platform.core.errors import Conflict, PlatformError
from sandlot.platform.core.events import SandboxEventType
from sandlot.platform.core.model import LIVE, ProviderSandbox, Session, SessionStatus
from sandlot.platform.core.ports import Provider
from sandlot.platform.providers.health import ProviderRegistry
from sandlot.platform.sessions.queue import Queue
from sandlot.platform.sessions.service import Sessions
from sandlot.platform.sessions.state import SessionState

log = logging.getLogger(__name__)
INTERVAL_S = 30.0
MOST_FORKS = 4096
_STABLE = frozenset({SessionStatus.RUNNING, SessionStatus.PAUSED})
_TRANSITIONAL = frozenset({SessionStatus.STARTING, SessionStatus.RESUMING, SessionStatus.PAUSING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The differences between sessions and one provider."""

    strays: Sequence[ProviderSandbox] = ()  # sandboxes that no live session owns
    missing: Sequence[Session] = ()  # sessions whose sandbox was not listed
    moved: Sequence[tuple[Session, ProviderSandbox]] = ()  # paused or resumed without us


def drift(sessions: Sequence[Session], found: Sequence[ProviderSandbox]) -> Drift:
    """Compare. Sessions in a transitional state are left alone."""
    live = {session.id: session for session in sessions}
    by_id = {sandbox.id: sandbox for sandbox in found}
    strays = [sandbox for sandbox in found if not _owns(live.get(sandbox.session), sandbox)]
    settled = [session for session in sessions if session.status in _STABLE]
    missing = [session for session in settled if session.provider_sandbox_id not in by_id]
    moved = [
        (session, sandbox)
        for session in settled
        if (sandbox := by_id.get(session.provider_sandbox_id or "")) is not None
        and sandbox.is_paused != (session.status is SessionStatus.PAUSED)
    ]
    return Drift(strays=strays, missing=missing, moved=moved)


def _owns(session: Session | None, sandbox: ProviderSandbox) -> bool:
    if session is None:
        return False
    return session.provider_sandbox_id == sandbox.id or (
        session.provider_sandbox_id is None
        and session.status in (SessionStatus.STARTING, SessionStatus.QUEUED, SessionStatus.DELETING)
    )


class SessionReconciler:
    def __init__(self, *, state: SessionState, sessions: Sessions, queue: Queue, providers: ProviderRegistry) -> None:
        self._state, self._sessions, self._queue, self._providers = state, sessions, queue, providers
        self._forks: set[str] = set()  # sandboxes known to be made from others
        self._unfinished: set[str] = set()  # providers whose interrupted sessions are not resolved yet
        # Ids and revisions of sessions that an earlier run left in a transitional state.
        self._interrupted: set[tuple[str, int]] = set()

    async def at_start(self) -> None:
        """Resolve what an earlier run left in a transitional state, for each provider as soon as it answers."""
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
                log.error("could not compare sessions with the providers: %s", error)

    async def reconcile(self) -> None:
        for name in self._providers.all:
            try:
                await self._compare(name)
            except PlatformError as error:
                log.warning("could not compare sessions with provider %s: %s", name, error)

    async def _compare(self, name: str) -> None:
        # The rows are read after the list: whatever is in the list had its row already.
        async with self._providers.calling(name) as provider:
            found = await provider.inventory()
        rows = [row for row in await self._state.store.query(statuses=LIVE) if row.provider == name]
        if name in self._unfinished:
            await self._finish_moves(rows, {sandbox.session: sandbox for sandbox in found})
            self._unfinished.discard(name)
            rows = [row for row in await self._state.store.query(statuses=LIVE) if row.provider == name]
        difference = drift(rows, found)
        for sandbox in difference.strays:
            await self._remove(name, sandbox)
        for session in difference.missing:
            await self._confirm_missing(session)
        for session, sandbox in difference.moved:
            await self._adopt_provider_state(session, sandbox)
        await self._finish_deletions(rows, {sandbox.session: sandbox for sandbox in found})

    async def _finish_moves(self, rows: Sequence[Session], found: Mapping[str, ProviderSandbox]) -> None:
        for session in rows:
            if (session.id, session.revision) in self._interrupted:
                with contextlib.suppress(Conflict):
                    await self._resolve(session, found.get(session.id))
        self._queue.notify()

    async def _resolve(self, session: Session, sandbox: ProviderSandbox | None) -> None:
        now = self._state.clock()
        if sandbox is None and session.provider_sandbox_id is None:
            log.warning("sandbox %s was being started when the platform stopped; it starts again", session.id)
            await self._state.move(session, SessionStatus.QUEUED)
        elif sandbox is None:
            await self._sessions.mark_lost(session, f"provider {session.provider!r} has this sandbox no more")
        elif session.status is SessionStatus.STARTING:
            log.warning("sandbox %s was made as the platform stopped; adopted", session.id)
            await self._state.move(
                session,
                SessionStatus.RUNNING,
                self._state.event(session, SandboxEventType.READY),
                provider_sandbox_id=sandbox.id,
                envs={},
                started_at=now,
                last_used_at=now,
                expires_at=now + timedelta(seconds=session.timeout_s),
                queued_at=None,
                problem=None,
            )
        else:
            to, kind = _state_of(sandbox)
            log.warning("sandbox %s was %s when the platform stopped; it is %s", session.id, session.status, to)
            await self._state.move(session, to, self._state.event(session, kind), queued_at=None)

    async def _remove(self, provider: str, sandbox: ProviderSandbox) -> None:
        row = await self._state.store.get(sandbox.session)
        if row is not None and _owns(row, sandbox):  # it was created meanwhile
            return
        async with self._providers.calling(provider) as calling:
            if await self._is_fork(calling, sandbox.id):
                return
            log.warning("sandbox %s at provider %s belongs to no session; removed", sandbox.id, provider)
            await calling.kill(sandbox.id)

    async def _is_fork(self, provider: Provider, sandbox_id: str) -> bool:
        """Whether somebody made it from a session's sandbox, mark and all. It is theirs, and ends by itself."""
        if sandbox_id in self._forks:
            return True
        inspection = provider.inspection if isinstance(provider, Inspectable) else None
        life = await inspection.life(sandbox_id) if isinstance(inspection, Remembering) else None
        if life is None or life.sandbox.source is None:
            return False
        if len(self._forks) >= MOST_FORKS:
            self._forks.clear()
        self._forks.add(sandbox_id)
        log.info("sandbox %s is a fork of sandbox %s; it stays", sandbox_id, life.sandbox.source)
        return True

    async def _confirm_missing(self, session: Session) -> None:
        """A list may omit a sandbox that is changing, so ask for this one."""
        assert session.provider_sandbox_id is not None
        async with self._providers.calling(session.provider) as provider:
            found = await provider.find(session.provider_sandbox_id)
        if found is None:
            log.warning("sandbox %s is gone from provider %s", session.id, session.provider)
            await self._sessions.mark_lost(session, f"provider {session.provider!r} has this sandbox no more")

    async def _adopt_provider_state(self, session: Session, sandbox: ProviderSandbox) -> None:
        if self._sessions.is_in_use(session.id):
            return
        async with self._providers.calling(session.provider) as provider:
            now = await provider.find(sandbox.id)
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
        """Finish deletions of sessions whose start was interrupted by the end of an earlier run."""
        for session in rows:
            waiting = session.status is SessionStatus.DELETING and session.provider_sandbox_id is None
            if not waiting or self._queue.is_launching(session.id):
                continue
            if sandbox := found.get(session.id):
                log.warning("sandbox %s was deleted while it started; removed", session.id)
                async with self._providers.calling(session.provider) as provider:
                    await provider.kill(sandbox.id)
            with contextlib.suppress(Conflict):
                gone = self._state.event(session, SandboxEventType.DELETED, reason="deleted by its user")
                await self._state.move(session, SessionStatus.DELETED, gone)


def _state_of(sandbox: ProviderSandbox) -> tuple[SessionStatus, SandboxEventType]:
    return (
        (SessionStatus.PAUSED, SandboxEventType.PAUSED)
        if sandbox.is_paused
        else (SessionStatus.RUNNING, SandboxEventType.RESUMED)
    )
