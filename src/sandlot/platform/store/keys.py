"""Callers' keys in the database, by digest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import insert, select, update

from sandlot.platform.core.model import UserKey
from sandlot.platform.store import records
from sandlot.platform.store.database import Database
from sandlot.platform.store.schema import keys


class SqlKeys:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, key: UserKey) -> None:
        async with self._database.write("add a key") as connection:
            await connection.execute(insert(keys), records.key_row(key))

    async def by_digest(self, digest: str) -> UserKey | None:
        async with self._database.read("look up a key") as connection:
            query = select(keys).where(keys.c.digest == digest)
            row = (await connection.execute(query)).mappings().one_or_none()
            return records.key(row) if row is not None else None

    async def keys(self) -> Sequence[UserKey]:
        async with self._database.read("list keys") as connection:
            query = select(keys).order_by(keys.c.created_at, keys.c.id)
            return [records.key(row) for row in (await connection.execute(query)).mappings()]

    async def revoke(self, key: str, at: datetime) -> bool:
        change = update(keys).where(keys.c.id == key, keys.c.revoked_at.is_(None)).values(revoked_at=at)
        async with self._database.write("revoke a key") as connection:
            return (await connection.execute(change)).rowcount == 1

    async def touch(self, key: str, at: datetime) -> None:
        async with self._database.write("note the use of a key") as connection:
            await connection.execute(update(keys).where(keys.c.id == key).values(last_used_at=at))
