"""Values that the platform creates once and keeps: its identity, its secrets."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import insert, select

from sandlot.platform.core.errors import Conflict
from sandlot.platform.store.database import Database
from sandlot.platform.store.schema import facts


class SqlFacts:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def once(self, name: str, make: Callable[[], str]) -> str:
        """The value of this name; created if there is none."""
        known = await self._read(name)
        if known is not None:
            return known
        try:
            async with self._database.write(f"keep the fact {name!r}") as connection:
                await connection.execute(insert(facts), {"name": name, "value": make()})
        except Conflict:
            pass  # another process was first
        known = await self._read(name)
        assert known is not None
        return known

    async def _read(self, name: str) -> str | None:
        async with self._database.read(f"read the fact {name!r}") as connection:
            found: str | None = (
                await connection.execute(select(facts.c.value).where(facts.c.name == name))
            ).scalar_one_or_none()
            return found
