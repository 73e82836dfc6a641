"""GitHub's deliveries in the database, with their bodies compressed."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import delete, insert, select, update

from sandlot.platform.core.errors import NotFound
from sandlot.platform.core.triggers import GitHubDelivery, InboxStatus
from sandlot.platform.store.database import Database
from sandlot.platform.store.records import Row
from sandlot.platform.store.schema import github_deliveries as table

_SHOWN = [table.c[field.name] for field in fields(GitHubDelivery)]


def _delivery(row: Row) -> GitHubDelivery:
    known = {field.name: row[field.name] for field in fields(GitHubDelivery)}
    return GitHubDelivery(**{**known, "status": InboxStatus(row["status"]), "tasks": tuple(row["tasks"])})


def _row(delivery: GitHubDelivery) -> dict[str, Any]:
    known = {field.name: getattr(delivery, field.name) for field in fields(delivery) if field.name != "seq"}
    return {**known, "status": delivery.status.value, "tasks": list(delivery.tasks)}


class SqlGitHubInbox:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, arrived: Sequence[tuple[GitHubDelivery, bytes]]) -> Sequence[bool]:
        ids = [delivery.id for delivery, _ in arrived]
        rows = {delivery.id: {**_row(delivery), "body": zlib.compress(body, 1)} for delivery, body in arrived}
        async with self._database.write("store webhooks of GitHub") as connection:
            found = await connection.execute(select(table.c.id).where(table.c.id.in_(ids)))
            known = set(found.scalars())
            new = [row for id, row in rows.items() if id not in known]
            if new:
                await connection.execute(insert(table), new)
        told = []
        for id in ids:
            told.append(id not in known)
            known.add(id)
        return told

    async def claim(self, now: datetime, until: datetime, limit: int) -> Sequence[GitHubDelivery]:
        due = (table.c.status == InboxStatus.WAITING.value) & (table.c.next_at <= now)
        async with self._database.read("look for webhooks of GitHub") as connection:
            if (await connection.execute(select(table.c.seq).where(due).limit(1))).first() is None:
                return []
        chosen = select(table.c.seq).where(due).order_by(table.c.seq).limit(limit)
        change = update(table).where(due, table.c.seq.in_(chosen)).values(next_at=until).returning(*_SHOWN)
        async with self._database.write("look for webhooks of GitHub") as connection:
            found = [_delivery(row) for row in (await connection.execute(change)).mappings()]
        return sorted(found, key=lambda each: each.seq)

    async def release(self, ids: Sequence[str], now: datetime) -> None:
        waiting = (table.c.status == InboxStatus.WAITING.value) & table.c.id.in_(ids)
        async with self._database.write("give webhooks of GitHub back") as connection:
            await connection.execute(update(table).where(waiting).values(next_at=now))

    async def get(self, id: str) -> GitHubDelivery | None:
        async with self._database.read("look up a webhook of GitHub") as connection:
            row = (await connection.execute(select(*_SHOWN).where(table.c.id == id))).mappings().one_or_none()
            return _delivery(row) if row is not None else None

    async def body(self, id: str) -> bytes:
        async with self._database.read("read a webhook of GitHub") as connection:
            found = (await connection.execute(select(table.c.body).where(table.c.id == id))).scalar_one_or_none()
        if found is None:
            raise NotFound(f"there is no delivery {id!r}")
        return zlib.decompress(found)

    async def settle(self, delivery: GitHubDelivery) -> None:
        async with self._database.write("note what became of a webhook") as connection:
            await connection.execute(update(table).where(table.c.id == delivery.id).values(_row(delivery)))

    async def list(self, limit: int, status: InboxStatus | None = None) -> Sequence[GitHubDelivery]:
        query = select(*_SHOWN).order_by(table.c.seq.desc()).limit(limit)
        if status is not None:
            query = query.where(table.c.status == status.value)
        async with self._database.read("list webhooks of GitHub") as connection:
            return [_delivery(row) for row in (await connection.execute(query)).mappings()]

    async def purge(self, before: datetime) -> None:
        old = (table.c.received_at < before) & (table.c.status != InboxStatus.WAITING.value)
        async with self._database.write("forget old webhooks of GitHub") as connection:
            await connection.execute(delete(table).where(old))
