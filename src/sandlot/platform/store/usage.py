"""What users used, in the database: a row for each day, user, repository and agent, and how far each sandbox was counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from sandlot.platform.core.usage import UsageAmount, UsageKey
from sandlot.platform.store.database import Database
from sandlot.platform.store.schema import meters, usage

KEYS = ("day", "user_id", "repository", "agent")
AMOUNTS = ("seconds", "cpu_s", "memory_gib_s", "starts")


class SqlUsage:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def meters(self, provider: str) -> Mapping[str, datetime]:
        query = select(meters.c.sandbox_id, meters.c.charged_until).where(meters.c.provider == provider)
        async with self._database.read("read how far sandboxes were counted") as connection:
            return {row.sandbox_id: row.charged_until for row in await connection.execute(query)}

    async def charge(
        self, provider: str, amounts: Mapping[UsageKey, UsageAmount], until: Mapping[str, datetime]
    ) -> None:
        if not until:
            return
        async with self._database.write("count what sandboxes used") as connection:
            for key, amount in amounts.items():
                await connection.execute(_added(connection, key, amount))
            for sandbox_id, moment in until.items():
                row = {"provider": provider, "sandbox_id": sandbox_id, "charged_until": moment}
                moved = _insert(connection, meters).values(row)
                await connection.execute(
                    moved.on_conflict_do_update(
                        index_elements=["provider", "sandbox_id"], set_={"charged_until": moment}
                    )
                )

    async def totals(
        self, first_day: str, last_day: str, user_id: str | None
    ) -> Sequence[tuple[UsageKey, UsageAmount]]:
        query = select(usage).where(usage.c.day >= first_day, usage.c.day <= last_day).order_by(usage.c.day)
        if user_id is not None:
            query = query.where(usage.c.user_id == user_id)
        async with self._database.read("read what was used") as connection:
            return [
                (UsageKey(**{name: row[name] for name in KEYS}), UsageAmount(**{name: row[name] for name in AMOUNTS}))
                for row in (await connection.execute(query)).mappings()
            ]

    async def forget_meters(self, before: datetime) -> None:
        async with self._database.write("forget how far old sandboxes were counted") as connection:
            await connection.execute(delete(meters).where(meters.c.charged_until < before))


def _insert(connection: AsyncConnection, table: Any) -> Any:
    return (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(table)


def _added(connection: AsyncConnection, key: UsageKey, amount: UsageAmount) -> Any:
    given = {name: getattr(amount, name) for name in AMOUNTS}
    fresh = _insert(connection, usage).values(**{name: getattr(key, name) for name in KEYS}, **given)
    more = {name: usage.c[name] + value for name, value in given.items()}
    return fresh.on_conflict_do_update(index_elements=list(KEYS), set_=more)
