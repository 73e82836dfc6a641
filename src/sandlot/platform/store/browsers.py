"""Browsers, their contexts and extensions in the database. What is searched by has a column; the rest of a browser is one document."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, delete, select

from sandlot.platform.core.browsers import (
    LIVE_BROWSERS,
    Browser,
    BrowserContext,
    BrowserExtension,
    BrowserStatus,
)
from sandlot.platform.core.events import Event
from sandlot.platform.core.ports import Aggregate
from sandlot.platform.store.aggregates import AggregateRows, AggregateTable
from sandlot.platform.store.database import Database
from sandlot.platform.store.events import Route, append
from sandlot.platform.store.records import Row
from sandlot.platform.store.schema import browser_contexts, browser_extensions, browsers

_COLUMNS = frozenset({"id", "user_id", "status", "created_at", "started_at", "ended_at", "revision"})
_BROWSER: TypeAdapter[Browser] = TypeAdapter(Browser)
Kept = TypeVar("Kept", bound=Aggregate)


def _read(row: Row) -> Browser:
    return _BROWSER.validate_python({**row["record"], **{name: row[name] for name in _COLUMNS}})


def _write(browser: Browser) -> dict[str, Any]:
    whole = _BROWSER.dump_python(browser, mode="json")
    columns = {name: getattr(browser, name) for name in _COLUMNS}
    rest = {name: value for name, value in whole.items() if name not in _COLUMNS}
    return {**columns, "status": browser.status.value, "record": rest}


def _read_context(row: Row) -> BrowserContext:
    return BrowserContext(**{field.name: row[field.name] for field in fields(BrowserContext)})


def _write_context(context: BrowserContext) -> dict[str, Any]:
    named = f"{context.user_id}\n{context.name.casefold()}" if context.name is not None else None
    return {**{field.name: getattr(context, field.name) for field in fields(context)}, "name_key": named}


def _read_extension(row: Row) -> BrowserExtension:
    return BrowserExtension(**{field.name: row[field.name] for field in fields(BrowserExtension)})


def _write_extension(extension: BrowserExtension) -> dict[str, Any]:
    return {field.name: getattr(extension, field.name) for field in fields(extension)}


BROWSERS = AggregateTable(noun="browser", table=browsers, read=_read, write=_write)
CONTEXTS = AggregateTable(noun="context", table=browser_contexts, read=_read_context, write=_write_context)
EXTENSIONS = AggregateTable(noun="extension", table=browser_extensions, read=_read_extension, write=_write_extension)
_ENDED = browsers.c.status.not_in(sorted(status.value for status in LIVE_BROWSERS))


class SqlBrowsers(AggregateRows[Browser]):
    def __init__(self, database: Database, route: Route = lambda _: ()) -> None:
        super().__init__(database, BROWSERS, route)

    async def query(
        self,
        *,
        user_id: str | None = None,
        statuses: Collection[BrowserStatus] | None = None,
        limit: int | None = None,
    ) -> Sequence[Browser]:
        conditions: list[ColumnElement[bool]] = []
        if user_id is not None:
            conditions.append(browsers.c.user_id == user_id)
        if statuses is not None:
            conditions.append(browsers.c.status.in_(sorted(status.value for status in statuses)))
        query = select(browsers).where(*conditions).order_by(browsers.c.created_at.desc(), browsers.c.id.desc())
        return await self.many(query.limit(limit))

    async def minutes(self, user_id: str) -> float:
        query = select(browsers.c.started_at, browsers.c.ended_at).where(browsers.c.user_id == user_id, _ENDED)
        async with self._database.read("add up how long browsers ran") as connection:
            rows = (await connection.execute(query)).all()
        return float(sum((ended - started).total_seconds() for started, ended in rows if started and ended) / 60)

    async def purge(self, ended_before: datetime) -> Sequence[str]:
        old = _ENDED & (browsers.c.ended_at < ended_before)
        async with self._database.write("forget old browsers") as connection:
            found = [row.id for row in await connection.execute(select(browsers.c.id).where(old))]
            if found:
                await connection.execute(delete(browsers).where(browsers.c.id.in_(found)))
        return found


class _Removable(AggregateRows[Kept]):
    async def remove(self, id: str, *events: Event) -> None:
        """Nothing happens if there is none."""
        async with self._database.write(f"delete {self._kind.noun} {id!r}") as connection:
            await connection.execute(delete(self._kind.table).where(self._kind.table.c.id == id))
            await append(connection, self._route, events)


class SqlBrowserContexts(_Removable[BrowserContext]):
    def __init__(self, database: Database, route: Route = lambda _: ()) -> None:
        super().__init__(database, CONTEXTS, route)

    async def by_name(self, user_id: str, name: str) -> BrowserContext | None:
        return await self.one(browser_contexts.c.name_key == f"{user_id}\n{name.casefold()}")


class SqlBrowserExtensions(_Removable[BrowserExtension]):
    def __init__(self, database: Database, route: Route = lambda _: ()) -> None:
        super().__init__(database, EXTENSIONS, route)
