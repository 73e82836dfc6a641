"""Sandboxes in the database."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

from sqlalchemy import ColumnElement, Select, and_, delete, func, insert, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from sandlot.engine.core.model import Sandbox, State
from sandlot.engine.core.ports import Clock
from sandlot.engine.store import records, revisions
from sandlot.engine.store.database import Database
from sandlot.engine.store.histories import forgotten, mark_of
from sandlot.engine.store.schema import sandboxes


class SqlSandboxes:
    def __init__(self, database: Database, clock: Clock = lambda: datetime.now(UTC)) -> None:
        self._database, self._clock = database, clock

    async def add(self, sandbox: Sandbox, *, most: int | None = None, counting: Collection[State] = ()) -> bool:
        async with self._database.write(f"add sandbox {sandbox.id!r}") as connection:
            if most is not None and (await connection.execute(_counted(None, counting))).scalar_one() >= most:
                return False
            await connection.execute(insert(sandboxes), records.sandbox_row(sandbox, self._database.sealer))
        return True

    async def get(self, sandbox_id: str) -> Sandbox | None:
        return await self._one(select(sandboxes).where(sandboxes.c.id == sandbox_id))

    async def by_idempotency_key(self, team_id: str, key: str) -> Sandbox | None:
        return await self._one(
            select(sandboxes).where(sandboxes.c.team_id == team_id, sandboxes.c.idempotency_key == key)
        )

    async def swap(self, old: Sandbox, new: Sandbox) -> Sandbox:
        mark = mark_of(old, new, self._clock())
        return await revisions.swap(
            self._database, sandboxes, old, new, lambda row: records.sandbox_row(row, self._database.sealer), mark
        )

    async def query(
        self,
        *,
        team_id: str | None = None,
        states: Collection[State] | None = None,
        metadata: Mapping[str, str] | None = None,
        template: str | None = None,
        started_after: datetime | None = None,
        descending: bool = True,
        limit: int | None = None,
        after: tuple[datetime, str] | None = None,
    ) -> Sequence[Sandbox]:
        async with self._database.read("list sandboxes") as connection:
            conditions = _owned(team_id, states)
            conditions += [_has_metadata(connection, name, value) for name, value in (metadata or {}).items()]
            if template is not None:
                conditions.append(or_(sandboxes.c.template_id == template, sandboxes.c.template_name == template))
            if started_after is not None:
                conditions.append(sandboxes.c.started_at >= started_after)
            if after is not None:
                conditions.append(_beyond(after, descending))
            order = [sandboxes.c.started_at, sandboxes.c.id]
            query = select(sandboxes).where(*conditions).limit(limit)
            query = query.order_by(*(column.desc() for column in order) if descending else order)
            return [records.sandbox(row, self._database.sealer) for row in (await connection.execute(query)).mappings()]

    async def count(self, *, team_id: str | None = None, states: Collection[State] | None = None) -> int:
        async with self._database.read("count sandboxes") as connection:
            return (await connection.execute(_counted(team_id, states))).scalar_one()

    async def expired(self, now: datetime, limit: int = 100) -> Sequence[Sandbox]:
        query = (
            select(sandboxes)
            .where(sandboxes.c.state == State.RUNNING.value, sandboxes.c.end_at <= now)
            .order_by(sandboxes.c.end_at)
            .limit(limit)
        )
        async with self._database.read("look for sandboxes past their deadline") as connection:
            return [records.sandbox(row, self._database.sealer) for row in (await connection.execute(query)).mappings()]

    async def purge(self, ended_before: datetime) -> int:
        over = (sandboxes.c.state == State.ENDED.value, sandboxes.c.ended_at < ended_before)
        async with self._database.write("forget ended sandboxes") as connection:
            for statement in forgotten(select(sandboxes.c.id).where(*over)):
                await connection.execute(statement)
            return (await connection.execute(delete(sandboxes).where(*over))).rowcount

    async def _one(self, query: Select[tuple[object, ...]]) -> Sandbox | None:
        async with self._database.read("look up a sandbox") as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
            return records.sandbox(row, self._database.sealer) if row is not None else None


def _counted(team_id: str | None, states: Collection[State] | None) -> Select[int]:
    return select(func.count()).select_from(sandboxes).where(*_owned(team_id, states))


def _owned(team_id: str | None, states: Collection[State] | None) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if team_id is not None:
        conditions.append(sandboxes.c.team_id == team_id)
    if states is not None:
        conditions.append(sandboxes.c.state.in_(sorted(state.value for state in states)))
    return conditions


def _beyond(last: tuple[datetime, str], descending: bool) -> ColumnElement[bool]:
    started_at, sandbox_id = sandboxes.c.started_at, sandboxes.c.id
    if descending:
        return or_(started_at < last[0], and_(started_at == last[0], sandbox_id < last[1]))
    return or_(started_at > last[0], and_(started_at == last[0], sandbox_id > last[1]))


def _has_metadata(connection: AsyncConnection, name: str, value: str) -> ColumnElement[bool]:
    """Compared as values, never as parts of a path: a name may hold dots and quotes."""
    if connection.dialect.name == "postgresql":
        return sandboxes.c.metadata.op("->>")(name) == value
    pairs = func.json_each(sandboxes.c.metadata).table_valued("key", "value")
    return select(1).select_from(pairs).where(pairs.c.key == name, pairs.c.value == value).exists()
