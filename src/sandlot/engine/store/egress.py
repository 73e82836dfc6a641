"""The egress log in the database: a bounded number of rows for each sandbox, and how many connections had no room."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, insert, select, update

from sandlot.engine.core.model import EgressEntry
from sandlot.engine.store.database import Database
from sandlot.engine.store.schema import egress_entries, egress_left_out

MOST = 5000  # rows of one sandbox


class SqlEgress:
    def __init__(self, database: Database, most: int = MOST) -> None:
        self._database, self._most = database, most

    async def add(
        self, team_id: str, sandbox_id: str, entries: Sequence[EgressEntry], left_out: int, at: datetime
    ) -> None:
        count = select(func.count()).where(egress_entries.c.sandbox_id == sandbox_id)
        async with self._database.write("keep what left a sandbox") as connection:
            room = max(self._most - (await connection.execute(count)).scalar_one(), 0)
            rows = [{**_row(entry), "team_id": team_id} for entry in entries[:room]]
            if rows:
                await connection.execute(insert(egress_entries), rows)
            left_out += sum(entry.connections for entry in entries[room:])
            if left_out:
                mine = egress_left_out.c.sandbox_id == sandbox_id
                change = update(egress_left_out).where(mine)
                change = change.values(connections=egress_left_out.c.connections + left_out, at=at)
                if (await connection.execute(change)).rowcount == 0:
                    row = {"sandbox_id": sandbox_id, "team_id": team_id, "connections": left_out, "at": at}
                    await connection.execute(insert(egress_left_out), row)

    async def page(
        self, team_id: str, sandbox_id: str, *, after: int, limit: int
    ) -> tuple[Sequence[tuple[int, EgressEntry]], int]:
        columns = egress_entries.c
        query = select(egress_entries).where(
            columns.team_id == team_id, columns.sandbox_id == sandbox_id, columns.id > after
        )
        omitted = select(egress_left_out.c.connections).where(
            egress_left_out.c.team_id == team_id, egress_left_out.c.sandbox_id == sandbox_id
        )
        async with self._database.read("read what left a sandbox") as connection:
            rows = (await connection.execute(query.order_by(columns.id).limit(limit))).mappings().all()
            left_out = (await connection.execute(omitted)).scalar_one_or_none() or 0
        return [(row["id"], _entry(row)) for row in rows], left_out

    async def purge(self, before: datetime) -> int:
        async with self._database.write("forget what left sandboxes") as connection:
            await connection.execute(delete(egress_left_out).where(egress_left_out.c.at < before))
            return (await connection.execute(delete(egress_entries).where(egress_entries.c.at < before))).rowcount


_NAMES = ("sandbox_id", "at", "host", "port", "allowed", "connections", "bytes_out", "bytes_in", "rule", "reason")


def _row(entry: EgressEntry) -> dict[str, Any]:
    return {**{name: getattr(entry, name) for name in _NAMES}, "secrets": list(entry.secrets)}


def _entry(row: Any) -> EgressEntry:
    return EgressEntry(**{name: row[name] for name in _NAMES}, secrets=tuple(row["secrets"]))
