"""Builds and their logs in the database."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import delete, insert, select

from sandlot.engine.core.model import Build, BuildStatus, LogEntry
from sandlot.engine.store import records, revisions
from sandlot.engine.store.database import Database
from sandlot.engine.store.schema import build_logs, builds, tags


class SqlBuilds:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, build: Build) -> None:
        async with self._database.write(f"add build {build.id!r}") as connection:
            await connection.execute(insert(builds), records.build_row(build))

    async def swap(self, old: Build, new: Build) -> Build:
        return await revisions.swap(self._database, builds, old, new, records.build_row)

    async def get(self, build_id: str) -> Build | None:
        async with self._database.read("look up a build") as connection:
            row = (await connection.execute(select(builds).where(builds.c.id == build_id))).mappings().one_or_none()
            return records.build(row) if row is not None else None

    async def query(
        self, *, template_id: str | None = None, statuses: Collection[BuildStatus] | None = None
    ) -> Sequence[Build]:
        wanted = select(builds).order_by(builds.c.created_at.desc(), builds.c.id)
        if template_id is not None:
            wanted = wanted.where(builds.c.template_id == template_id)
        if statuses is not None:
            wanted = wanted.where(builds.c.status.in_([status.value for status in statuses]))
        async with self._database.read("read builds") as connection:
            return [records.build(row) for row in (await connection.execute(wanted)).mappings()]

    async def forget(self, template_id: str) -> None:
        own = select(builds.c.id).where(builds.c.template_id == template_id)
        async with self._database.write("forget the builds of a template") as connection:
            await connection.execute(delete(tags).where(tags.c.template_id == template_id))
            await connection.execute(delete(build_logs).where(build_logs.c.build_id.in_(own)))
            await connection.execute(delete(builds).where(builds.c.template_id == template_id))

    async def log(self, build_id: str, first: int, entries: Sequence[LogEntry]) -> None:
        if not entries:
            return
        rows = [
            {"build_id": build_id, "number": number, **records.log_row(entry)}
            for number, entry in enumerate(entries, first)
        ]
        async with self._database.write("keep the log of a build") as connection:
            await connection.execute(insert(build_logs), rows)

    async def logs(self, build_id: str, *, offset: int, limit: int) -> Sequence[LogEntry]:
        wanted = (
            select(build_logs)
            .where(build_logs.c.build_id == build_id, build_logs.c.number >= offset)
            .order_by(build_logs.c.number)
            .limit(limit)
        )
        async with self._database.read("read the log of a build") as connection:
            return [records.log_entry(row) for row in (await connection.execute(wanted)).mappings()]
