"""Background commands in the database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, select

from sandlot.platform.core.model import BackgroundCommand, CommandStatus
from sandlot.platform.store import records
from sandlot.platform.store.aggregates import AggregateRows, AggregateTable
from sandlot.platform.store.database import Database
from sandlot.platform.store.events import Route
from sandlot.platform.store.schema import commands

TABLE = AggregateTable(noun="command", table=commands, read=records.command, write=records.command_row)


class SqlCommands(AggregateRows[BackgroundCommand]):
    def __init__(self, database: Database, route: Route = lambda _: ()) -> None:
        super().__init__(database, TABLE, route)

    async def running(self, sandbox_id: str | None = None) -> Sequence[BackgroundCommand]:
        query = select(commands).where(commands.c.status == CommandStatus.RUNNING.value)
        if sandbox_id is not None:
            query = query.where(commands.c.sandbox_id == sandbox_id)
        return await self.many(query.order_by(commands.c.started_at, commands.c.id))

    async def purge(self, ended_before: datetime) -> int:
        async with self._database.write("forget old commands") as connection:
            return (await connection.execute(delete(commands).where(commands.c.ended_at < ended_before))).rowcount
