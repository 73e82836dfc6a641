"""Tags of templates in the database."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import delete, insert, select, update

from sandlot.engine.core.model import Tag
from sandlot.engine.store import records
from sandlot.engine.store.database import Database
from sandlot.engine.store.schema import tags as table


class SqlTags:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def assign(self, tags: Sequence[Tag]) -> None:
        async with self._database.write("tag a build") as connection:
            for tag in tags:
                values = records.tag_row(tag)
                same = (table.c.template_id == tag.template_id) & (table.c.tag == tag.tag)
                if (await connection.execute(update(table).where(same).values(values))).rowcount == 0:
                    await connection.execute(insert(table), values)

    async def remove(self, template_id: str, tags: Collection[str]) -> int:
        gone = delete(table).where(table.c.template_id == template_id, table.c.tag.in_(tags))
        async with self._database.write("remove tags") as connection:
            return (await connection.execute(gone)).rowcount

    async def list(self, template_id: str) -> Sequence[Tag]:
        wanted = select(table).where(table.c.template_id == template_id).order_by(table.c.tag)
        async with self._database.read("read tags") as connection:
            return [records.tag(row) for row in (await connection.execute(wanted)).mappings()]
