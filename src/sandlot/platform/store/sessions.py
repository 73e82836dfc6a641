"""Sessions in the database. A change and the events about it are one transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import ColumnElement, and_, delete, insert, or_, select, update

from sandlot.platform.core.errors import Conflict
from sandlot.platform.core.model import TERMINAL, Event, Session, SessionStatus
from sandlot.platform.store import records
from sandlot.platform.store.database import Database
from sandlot.platform.store.events import Route, append
from sandlot.platform.store.schema import sessions


class SqlSessions:
    def __init__(self, database: Database, route: Route = lambda _: ()) -> None:
        self._database, self._route = database, route

    async def add(self, session: Session, *events: Event) -> None:
        async with self._database.write(f"add session {session.session_id!r}") as connection:
            await connection.execute(insert(sessions), records.session_row(session))
            await append(connection, self._route, events)

    async def get(self, session: str) -> Session | None:
        return await self._one(sessions.c.id == session)

    async def by_name(self, user_id: str, session_id: str) -> Session | None:
        return await self._one(sessions.c.live_key == f"{user_id}\n{session_id}")

    async def swap(self, old: Session, new: Session, *events: Event) -> Session:
        new = replace(new, revision=old.revision + 1)
        row = records.session_row(new)
        if new.last_used_at == old.last_used_at:
            del row["last_used_at"]  # `touch` may have written a later one
        change = update(sessions).where(sessions.c.id == old.id, sessions.c.revision == old.revision).values(row)
        async with self._database.write(f"change sandbox {old.id!r}") as connection:
            if (await connection.execute(change)).rowcount != 1:
                raise Conflict(f"sandbox {old.id!r} was changed by somebody else at the same time; try again")
            await append(connection, self._route, events)
        return new

    async def touch(self, session: str, at: datetime) -> None:
        change = update(sessions).where(sessions.c.id == session, sessions.c.last_used_at < at)
        async with self._database.write(f"note the use of sandbox {session!r}") as connection:
            await connection.execute(change.values(last_used_at=at))

    async def query(
        self,
        *,
        user_id: str | None = None,
        statuses: Collection[SessionStatus] | None = None,
        limit: int | None = None,
        after: tuple[datetime, str] | None = None,
    ) -> Sequence[Session]:
        conditions: list[ColumnElement[bool]] = []
        if user_id is not None:
            conditions.append(sessions.c.user_id == user_id)
        if statuses is not None:
            conditions.append(sessions.c.status.in_(sorted(status.value for status in statuses)))
        if after is not None:
            at, last = after
            older = and_(sessions.c.created_at == at, sessions.c.id < last)
            conditions.append(or_(sessions.c.created_at < at, older))
        query = select(sessions).where(*conditions).order_by(sessions.c.created_at.desc(), sessions.c.id.desc())
        async with self._database.read("list sessions") as connection:
            return [records.session(row) for row in (await connection.execute(query.limit(limit))).mappings()]

    async def purge(self, ended_before: datetime) -> int:
        over = sessions.c.status.in_(sorted(status.value for status in TERMINAL))
        async with self._database.write("forget old sessions") as connection:
            return (await connection.execute(delete(sessions).where(over, sessions.c.ended_at < ended_before))).rowcount

    async def _one(self, condition: ColumnElement[bool]) -> Session | None:
        async with self._database.read("look up a session") as connection:
            row = (await connection.execute(select(sessions).where(condition))).mappings().one_or_none()
            return records.session(row) if row is not None else None
