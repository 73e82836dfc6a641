"""The event log in the database. Append-only; ids become visible in their order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, delete, func, insert, or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from sandlot.platform.core.events import Event, EventFilter
from sandlot.platform.core.ports import EVERYTHING
from sandlot.platform.store import records
from sandlot.platform.store.database import Database
from sandlot.platform.store.schema import deliveries, events

Route = Callable[[Event], Sequence[str]]  # which webhooks an event goes to
APPEND_LOCK = 0x5A4D12


async def append(connection: AsyncConnection, route: Route, happened: Sequence[Event]) -> None:
    """Append events and their webhook deliveries, in the caller's transaction."""
    if not happened:
        return
    if connection.dialect.name == "postgresql":
        # Ids are drawn before the commit: without a lock, a reader could miss an id that is committed later.
        await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": APPEND_LOCK})
    for event in happened:
        added = await connection.execute(insert(events).returning(events.c.id), records.event_row(event))
        number = added.scalar_one()
        rows = [{"webhook": w, "event_id": number, "attempts": 0, "next_at": event.at} for w in route(event)]
        if rows:
            await connection.execute(insert(deliveries), rows)


MOST_PER_USER = 100_000  # events of one user that are kept


class SqlEvents:
    def __init__(self, database: Database, route: Route = lambda _: ()) -> None:
        self._database, self._route = database, route

    async def append(self, *happened: Event) -> None:
        async with self._database.write("log an event") as connection:
            await append(connection, self._route, happened)

    async def last_id(self) -> int:
        async with self._database.read("read the event log") as connection:
            return int((await connection.execute(select(func.coalesce(func.max(events.c.id), 0)))).scalar_one())

    async def after(self, cursor: int, limit: int, chosen: EventFilter = EVERYTHING) -> Sequence[Event]:
        conditions: list[ColumnElement[bool]] = [events.c.id > cursor]
        named = (
            (events.c.user_id, chosen.user_id),
            (events.c.subject_kind, chosen.subject_kind),
            (events.c.subject_id, chosen.subject_id),
            (events.c.session_id, chosen.session_id),
        )
        conditions += [column == value for column, value in named if value is not None]
        if chosen.types is not None and "*" not in chosen.types:
            conditions.append(_has_type(chosen.types))
        query = select(events).where(*conditions).order_by(events.c.id).limit(limit)
        async with self._database.read("read the event log") as connection:
            return [records.event(row) for row in (await connection.execute(query)).mappings()]

    async def forgot(self, cursor: int, user_id: str | None) -> bool:
        """May say so once too often (an id that no event got looks the same), but never once too few."""
        async with self._database.read("read the event log") as connection:
            oldest = (await connection.execute(select(func.min(events.c.id)))).scalar_one()
            if oldest is None:
                return cursor > 0
            if oldest > cursor + 1 or user_id is None:
                return bool(oldest > cursor + 1)
            own = select(func.count(), func.min(events.c.id)).where(events.c.user_id == user_id)
            count, first = (await connection.execute(own)).one()
            return bool(count >= MOST_PER_USER and first > cursor + 1)

    async def purge(self, before: datetime) -> int:
        """Also a user's oldest beyond what one user may have: nobody fills the log for the others."""
        busy = select(events.c.user_id).group_by(events.c.user_id).having(func.count() > MOST_PER_USER)
        async with self._database.write("forget old events") as connection:
            gone = (await connection.execute(delete(events).where(events.c.at < before))).rowcount
            for user in (await connection.execute(busy)).scalars().all():
                own = events.c.user_id == user
                newest = select(events.c.id).where(own).order_by(events.c.id.desc()).offset(MOST_PER_USER).limit(1)
                last = (await connection.execute(newest)).scalar_one()
                gone += (await connection.execute(delete(events).where(own, events.c.id <= last))).rowcount
        return gone


def _has_type(patterns: Collection[str]) -> ColumnElement[bool]:
    whole = sorted(pattern for pattern in patterns if not pattern.endswith(".*"))
    beginnings = sorted(pattern[:-1] for pattern in patterns if pattern.endswith(".*"))
    return or_(events.c.type.in_(whole), *(events.c.type.startswith(start, autoescape=True) for start in beginnings))
