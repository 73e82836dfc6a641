"""Rows that are changed by compare-and-set, each change in one transaction with the events about it; for any kind of record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic

from sqlalchemy import ColumnElement, Select, Table, insert, select, update

from sandlot.platform.core.errors import Conflict
from sandlot.platform.core.events import Event
from sandlot.platform.core.ports import Record
from sandlot.platform.store.database import Database
from sandlot.platform.store.events import Route, append
from sandlot.platform.store.records import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateTable(Generic[Record]):
    """One kind of record: its table (with columns `id` and `revision`), and how rows are read and written."""

    noun: str  # for people, as in "sandbox"
    table: Table
    read: Callable[[Row], Record]
    write: Callable[[Record], dict[str, Any]]


class AggregateRows(Generic[Record]):
    def __init__(self, database: Database, kind: AggregateTable[Record], route: Route = lambda _: ()) -> None:
        self._database, self._kind, self._route = database, kind, route
        self._secrets = tuple(column.name for column in Database.tables.sealed if column.table is kind.table)

    async def add(self, record: Record, *events: Event) -> None:
        async with self._database.write(f"add {self._kind.noun} {record.id!r}") as connection:
            await connection.execute(insert(self._kind.table), self._sealed(self._kind.write(record)))
            await append(connection, self._route, events)

    async def get(self, id: str) -> Record | None:
        return await self.one(self._kind.table.c.id == id)

    async def one(self, condition: ColumnElement[bool]) -> Record | None:
        async with self._database.read(f"look up a {self._kind.noun}") as connection:
            query = select(self._kind.table).where(condition)
            row = (await connection.execute(query)).mappings().one_or_none()
            return self._kind.read(self._opened(row)) if row is not None else None

    async def many(self, query: Select[Any]) -> Sequence[Record]:
        async with self._database.read(f"list {self._kind.noun} records") as connection:
            return [self._kind.read(self._opened(row)) for row in (await connection.execute(query)).mappings()]

    async def swap(self, old: Record, new: Record, *events: Event) -> Record:
        new = replace(new, revision=old.revision + 1)
        before, table = self._kind.write(old), self._kind.table
        # Only what changed is written: a column may also be updated elsewhere without a new revision.
        values = {name: value for name, value in self._kind.write(new).items() if value != before[name]}
        change = (
            update(table).where(table.c.id == old.id, table.c.revision == old.revision).values(self._sealed(values))
        )
        async with self._database.write(f"change {self._kind.noun} {old.id!r}") as connection:
            if (await connection.execute(change)).rowcount != 1:
                raise Conflict(f"{self._kind.noun} {old.id!r} was changed by another request; try again")
            await append(connection, self._route, events)
        return new

    def _sealed(self, values: dict[str, Any]) -> dict[str, Any]:
        secret = {name: values[name] for name in self._secrets if values.get(name)}
        return {**values, **{name: self._database.sealer.seal(value) for name, value in secret.items()}}

    def _opened(self, row: Row) -> Row:
        if not self._secrets:
            return row
        return {**row, **{name: self._database.sealer.open(row[name]) for name in self._secrets}}
