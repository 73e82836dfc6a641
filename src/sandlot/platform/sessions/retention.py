"""Retention: pauses idle sandboxes, deletes old ones, cancels requests that waited too long, and purges old rows."""

from __future__ import annotations

import asyncio
import functools
import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sandlot.platform.core.errors import Conflict, PlatformError
from sandlot.platform.core.events import SandboxEventType
from sandlot.platform.core.model import LIVE, RetentionPolicy, Session, SessionLimits, SessionStatus, TimeoutAction
from sandlot.platform.sessions.background import BackgroundCommands
from sandlot.platform.sessions.queue import Queue
from sandlot.platform.sessions.service import Sessions
from sandlot.platform.sessions.state import SessionState
from sandlot.platform.sessions.tools import SandboxTools

log = logging.getLogger(__name__)
INTERVAL_S = 1.0
AT_ONCE = 8
PURGE_INTERVAL = timedelta(minutes=10)


class RetentionAction(StrEnum):
    PAUSE = "pause"
    DELETE = "delete"
    CANCEL = "cancel"  # remove from the queue
    FINISH = "finish"  # complete a deletion at the provider


@dataclass(frozen=True, slots=True)
class DueAction:
    act: RetentionAction
    reason: str
    for_idleness: bool = False


def due_action(session: Session, now: datetime, policy: RetentionPolicy, limits: SessionLimits) -> DueAction | None:
    """The action that is due for a session now, if any."""
    if session.status is SessionStatus.DELETING:
        return DueAction(RetentionAction.FINISH, "deleted by its user")
    too_old = policy.max_age_s and now - session.created_at >= timedelta(seconds=policy.max_age_s)
    if too_old and session.status in (SessionStatus.RUNNING, SessionStatus.PAUSED, SessionStatus.QUEUED):
        return DueAction(RetentionAction.DELETE, f"older than the {policy.max_age_s} s that sandboxes may get")
    if session.status is SessionStatus.QUEUED and session.queued_at is not None:
        waited = now - session.queued_at >= timedelta(seconds=limits.queue_timeout_s)
        return DueAction(RetentionAction.CANCEL, f"waited {limits.queue_timeout_s} s in the queue") if waited else None
    if session.status is not SessionStatus.RUNNING:
        return None
    if session.expires_at is not None and now >= session.expires_at:
        act = RetentionAction.PAUSE if policy.on_timeout is TimeoutAction.PAUSE else RetentionAction.DELETE
        return DueAction(act, f"its timeout of {session.timeout_s} s is over")
    if policy.idle_pause_s and now - session.last_used_at >= timedelta(seconds=policy.idle_pause_s):
        return DueAction(RetentionAction.PAUSE, f"not used for {policy.idle_pause_s} s", for_idleness=True)
    return None


class Retention:
    """Applies the retention policy to every live session, at an interval."""

    def __init__(
        self,
        *,
        state: SessionState,
        sessions: Sessions,
        queue: Queue,
        tools: SandboxTools,
        background: BackgroundCommands,
        policy: RetentionPolicy,
        limits: SessionLimits,
    ) -> None:
        self._state, self._sessions, self._queue, self._tools = state, sessions, queue, tools
        self._background, self._policy, self._limits = background, policy, limits
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._purged_at: datetime | None = None

    async def run(self, interval_s: float = INTERVAL_S) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self.sweep()
                await self._purge()
            except PlatformError as error:
                log.error("could not apply the retention policy: %s", error)

    async def sweep(self) -> None:
        """Start every action that is due. A slow provider delays its own sandboxes only."""
        now = self._state.clock()
        for session in await self._state.store.query(statuses=LIVE):
            what = due_action(session, now, self._policy, self._limits)
            if what is not None and session.id not in self._busy:
                task = asyncio.create_task(self._do(session, what))
                self._busy[session.id] = task
                task.add_done_callback(functools.partial(self._done, session.id))

    async def close(self) -> None:
        tasks = list(self._busy.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, session: str, _: asyncio.Task[None]) -> None:
        self._busy.pop(session, None)

    async def _do(self, session: Session, what: DueAction) -> None:
        async with self._turns:
            try:
                await self._act(session, what)
            except Conflict:
                log.debug("sandbox %s changed before it could be dealt with", session.id)
            except PlatformError as error:
                log.warning("could not %s sandbox %s (%s): %s", what.act.value, session.id, what.reason, error)

    async def _act(self, session: Session, what: DueAction) -> None:
        match what.act:
            case RetentionAction.PAUSE:
                await self._pause(session, what)
            case RetentionAction.DELETE if not self._sessions.is_in_use(session.id):
                await self._sessions.end(session, what.reason)
            case RetentionAction.FINISH if not self._queue.is_launching(session.id):
                await self._sessions.end(session, what.reason)
            case RetentionAction.CANCEL:
                await self._cancel(session, what.reason)

    async def _pause(self, session: Session, what: DueAction) -> None:
        if not what.for_idleness:
            await self._sessions.pause(session, what.reason)
        elif await self._background.keeps_awake(session.id):
            await self._state.store.touch(session.id, self._state.clock())  # idle time begins when the command ends
        elif not await self._is_used_inside(session):
            await self._sessions.pause(session, what.reason, unless=self._background.keeps_awake)

    async def _is_used_inside(self, session: Session) -> bool:
        """Whether its MCP tools were used directly; if so, that counts as its last use."""
        unused_s = await self._tools.unused_s(session)
        if unused_s is None or unused_s >= self._policy.idle_pause_s:
            return False
        await self._state.store.touch(session.id, self._state.clock() - timedelta(seconds=unused_s))
        return True

    async def _cancel(self, session: Session, reason: str) -> None:
        told = self._state.event(session, SandboxEventType.ERROR, message=f"not started: {reason}")
        to = SessionStatus.PAUSED if session.provider_sandbox_id is not None else SessionStatus.FAILED
        await self._state.move(session, to, told, queued_at=None, problem=reason)

    async def _purge(self) -> None:
        now = self._state.clock()
        if self._purged_at is not None and now - self._purged_at < PURGE_INTERVAL:
            return
        self._purged_at = now
        await self._state.events.purge(now - timedelta(seconds=self._policy.keep_events_s))
        keep_after = now - timedelta(seconds=self._policy.keep_ended_s)
        await self._state.store.purge(keep_after)
        await self._background.purge(keep_after)
