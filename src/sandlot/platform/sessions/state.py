"""The state of sessions: their table of moves, and the events about them. The only writer of sessions."""

from __future__ import annotations

from typing import Any

from sandlot.platform.core.events import SANDBOX, Event, SandboxEventType, Subject
from sandlot.platform.core.model import MOVES, TERMINAL, Session, SessionStatus
from sandlot.platform.core.ports import Clock, SessionStore
from sandlot.platform.events.aggregate import AggregateState
from sandlot.platform.events.log import EventLog


class SessionState(AggregateState[Session, SessionStatus]):
    def __init__(self, *, store: SessionStore, events: EventLog, clock: Clock) -> None:
        super().__init__(noun="sandbox", store=store, events=events, clock=clock, moves=MOVES)
        self.store = store

    async def create(self, session: Session) -> None:
        """Raises `Conflict` if the user has a live session of that name."""
        await self.add(session, self.event(session, SandboxEventType.CREATED, template_id=session.template_id))

    async def move(self, old: Session, to: SessionStatus, *events: Event, **changes: Any) -> Session:
        if to in TERMINAL:
            changes = {"ended_at": self.clock(), "envs": {}, **changes}
        return await super().move(old, to, *events, **changes)

    async def log(self, session: Session, type: str, **data: Any) -> None:
        await self.events.append(self.event(session, type, **data))

    def event(self, session: Session, type: str, **data: Any) -> Event:
        """What is None in `data` is left out."""
        return Event(
            type=type,
            at=self.clock(),
            user_id=session.user_id,
            subject=Subject(SANDBOX, session.id),
            session_id=session.session_id,
            data={name: value for name, value in data.items() if value is not None},
        )
