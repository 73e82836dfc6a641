"""Secrets in the database: their values sealed, and read by nobody but who puts them into requests."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sqlalchemy import and_, delete, func, insert, or_, select, update

from sandlot.engine.core.errors import Conflict
from sandlot.engine.core.model import Secret
from sandlot.engine.store import records
from sandlot.engine.store.database import Database
from sandlot.engine.store.schema import secrets

_described = [column for column in secrets.c if column.name != "value"]


class SqlSecrets:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, secret: Secret, value: str, *, most: int) -> bool:
        of_team = select(func.count()).where(secrets.c.team_id == secret.team_id)
        same = select(secrets.c.id).where(secrets.c.team_id == secret.team_id, secrets.c.name == secret.name)
        async with self._database.write("add a secret") as connection:
            if (await connection.execute(same)).first() is not None:
                raise Conflict(f"there is a secret {secret.name!r} already; update it, or choose another name")
            if (await connection.execute(of_team)).scalar_one() >= most:
                return False
            row = {**records.secret_row(secret), "value": self._database.sealer.seal(value)}
            await connection.execute(insert(secrets), row)
        return True

    async def find(self, team_id: str, ref: str) -> Secret | None:
        query = select(*_described).where(secrets.c.team_id == team_id, or_(secrets.c.id == ref, secrets.c.name == ref))
        async with self._database.read("look up a secret") as connection:
            row = (await connection.execute(query)).mappings().first()
            return records.secret(row) if row is not None else None

    async def page(
        self, team_id: str, *, limit: int | None = None, after: tuple[datetime, str] | None = None
    ) -> Sequence[Secret]:
        query = select(*_described).where(secrets.c.team_id == team_id)
        if after is not None:
            at, id = after
            later = and_(secrets.c.created_at == at, secrets.c.id > id)
            query = query.where(or_(secrets.c.created_at > at, later))
        query = query.order_by(secrets.c.created_at, secrets.c.id).limit(limit)
        async with self._database.read("list secrets") as connection:
            return [records.secret(row) for row in (await connection.execute(query)).mappings()]

    async def replace(self, secret: Secret, value: str) -> bool:
        before = and_(secrets.c.id == secret.id, secrets.c.version == secret.version - 1)
        row = {name: each for name, each in records.secret_row(secret).items() if name != "last_used_at"}
        async with self._database.write("update a secret") as connection:
            change = update(secrets).where(before).values({**row, "value": self._database.sealer.seal(value)})
            return (await connection.execute(change)).rowcount == 1

    async def delete(self, secret_id: str) -> bool:
        async with self._database.write("delete a secret") as connection:
            return (await connection.execute(delete(secrets).where(secrets.c.id == secret_id))).rowcount == 1

    async def values(self, team_id: str, names: Collection[str]) -> Mapping[str, str]:
        query = select(secrets.c.name, secrets.c.value).where(
            secrets.c.team_id == team_id, secrets.c.name.in_(list(names))
        )
        async with self._database.read("open secrets") as connection:
            rows = (await connection.execute(query)).all()
        return {name: self._database.sealer.open(stored) for name, stored in rows}

    async def touch(self, team_id: str, names: Collection[str], at: datetime) -> None:
        mine = and_(secrets.c.team_id == team_id, secrets.c.name.in_(list(names)))
        async with self._database.write("note the use of secrets") as connection:
            await connection.execute(update(secrets).where(mine).values(last_used_at=at))
