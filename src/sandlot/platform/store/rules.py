"""Rules that make tasks, in the database: whole ones, and the pauses of those in the configuration file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from pydantic import TypeAdapter
from sqlalchemy import delete, insert, select, update

from sandlot.platform.core.events import Event
from sandlot.platform.core.triggers import RuleRecord, TriggerRule
from sandlot.platform.store.database import Database
from sandlot.platform.store.events import Route, append
from sandlot.platform.store.schema import trigger_rules as table

_RULE: TypeAdapter[TriggerRule] = TypeAdapter(TriggerRule)


class SqlTriggerRules:
    def __init__(self, database: Database, route: Route = lambda _: ()) -> None:
        self._database, self._route = database, route

    async def all(self) -> Sequence[RuleRecord]:
        async with self._database.read("read the rules") as connection:
            rows = (await connection.execute(select(table).order_by(table.c.name))).mappings().all()
        return [
            RuleRecord(**{**row, "rule": _RULE.validate_python(row["rule"]) if row["rule"] is not None else None})
            for row in rows
        ]

    async def put(self, record: RuleRecord, *events: Event) -> None:
        rule = _RULE.dump_python(record.rule, mode="json") if record.rule is not None else None
        values = {field.name: getattr(record, field.name) for field in fields(record)} | {"rule": rule}
        async with self._database.write(f"note rule {record.name!r}") as connection:
            changed = await connection.execute(update(table).where(table.c.name == record.name).values(values))
            if not changed.rowcount:
                await connection.execute(insert(table), values)
            await append(connection, self._route, events)

    async def remove(self, name: str, *events: Event) -> bool:
        async with self._database.write(f"delete rule {name!r}") as connection:
            gone = (await connection.execute(delete(table).where(table.c.name == name))).rowcount
            await append(connection, self._route, events if gone else ())
        return bool(gone)
