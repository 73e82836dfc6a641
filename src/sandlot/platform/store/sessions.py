"""Sessions in the database. A change and the events about it are one transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, and_, delete, or_, select, update

from sandlot.platform.core.model import TERMINAL, Session, SessionStatus
from sandlot.platform.store import records
from sandlot.platform.store.aggregates import AggregateRows, AggregateTable
from sandlot.platform.store.database import Database
from sandlot.platform.store.events import Route
from sandlot.platform.store.schema import sessions

TABLE = AggregateTable(noun="sandbox", table=sessions, read=records.session, write=records.session_row)


class SqlSessions(AggregateRows[Session]):
    def __init__(self, database: Database, route: Route = lambda _: ()) -> None:
        super().__init__(database, TABLE, route)

    async def by_name(self, user_id: str, session_id: str) -> Session | None:
        return await self.one(sessions.c.live_key == f"{user_id}\n{session_id}")

    async def of_provider_sandbox(self, sandbox_id: str, *, include_ended: bool = False) -> Session | None:
        ended = sorted(status.value for status in TERMINAL)
        query = select(sessions).where(sessions.c.provider_sandbox_id == sandbox_id)
        if not include_ended:
            query = query.where(sessions.c.status.not_in(ended))
        found = await self.many(query.order_by(sessions.c.created_at.desc()).limit(1))
        return found[0] if found else None

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
        return await self.many(query.limit(limit))

    async def purge(self, ended_before: datetime) -> int:
        over = sessions.c.status.in_(sorted(status.value for status in TERMINAL))
        async with self._database.write("forget old sessions") as connection:
            return (await connection.execute(delete(sessions).where(over, sessions.c.ended_at < ended_before))).rowcount
