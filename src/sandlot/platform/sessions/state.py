"""The state: the only writer of sessions. Checks each move, logs it with its events, and wakes whoever waits for it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Any

from sandlot.platform.core.errors import Conflict
from sandlot.platform.core.model import MOVES, TERMINAL, Event, EventType, Session, SessionStatus
from sandlot.platform.core.ports import Clock, SessionStore
from sandlot.platform.events.log import EventLog

POLL_S = 2.0  # how soon changes by another process are seen


class SessionState:
    def __init__(self, *, store: SessionStore, events: EventLog, clock: Clock) -> None:
        self.store, self.events, self.clock = store, events, clock
        self._watched: dict[str, asyncio.Event] = {}

    async def add(self, session: Session) -> None:
        """Raises `Conflict` if the user has a living session of that name."""
        await self.store.add(session, self.event(session, EventType.CREATED, template_id=session.template_id))
        self.events.changed()

    async def move(self, old: Session, to: SessionStatus, *events: Event, **changes: Any) -> Session:
        """Raises `Conflict` if this move is not allowed, or somebody else was faster."""
        if to not in MOVES[old.status]:
            raise Conflict(f"sandbox {old.id!r} is {old.status.value}, so it cannot become {to.value}")
        if to in TERMINAL:
            changes = {"ended_at": self.clock(), "envs": {}, **changes}
        return await self._swap(old, replace(old, status=to, **changes), *events)

    async def change(self, old: Session, **changes: Any) -> Session:
        """Change what is not the status."""
        return await self._swap(old, replace(old, **changes))

    async def log(self, session: Session, kind: EventType, **data: Any) -> None:
        await self.events.append(self.event(session, kind, **data))

    def event(self, session: Session, kind: EventType, **data: Any) -> Event:
        return Event(
            type=kind,
            at=self.clock(),
            user_id=session.user_id,
            sandbox_id=session.id,
            session_id=session.session_id,
            data={name: value for name, value in data.items() if value is not None},
        )

    def watch(self, session: str) -> asyncio.Event:
        """Set at the session's next change. Take it before reading the row: then no change is missed."""
        return self._watched.setdefault(session, asyncio.Event())

    async def changed(self, watch: asyncio.Event, within_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(watch.wait(), min(within_s, POLL_S))

    async def _swap(self, old: Session, new: Session, *events: Event) -> Session:
        swapped = await self.store.swap(old, new, *events)
        if events:
            self.events.changed()
        if watch := self._watched.pop(old.id, None):
            watch.set()
        return swapped
