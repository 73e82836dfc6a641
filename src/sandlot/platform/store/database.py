"""The platform's database: a SQLite file of its own, or tables named `platform_...` in a PostgreSQL database that others use too."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Self

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from sandlot import sql
from sandlot.platform.core.errors import ConfigurationError, Conflict, InvalidRequest, PlatformError, Unavailable
from sandlot.platform.store.schema import REVISION, VERSION_TABLE, facts, repositories, sessions
from sandlot.platform.store.sealing import Sealer, forget_old, renew

SEALED = (sessions.c.envs, repositories.c.token)  # columns whose values are secret; their tables have an `id`


class Database(sql.Database):
    tables = sql.Tables(
        name="the platform's database",
        file="platform.db",
        migrations="sandlot.platform.store:migrations",
        revision=REVISION,
        version_table=VERSION_TABLE,
        lock=0x5A4D11,
        faults=sql.Faults(
            own=PlatformError,
            conflict=Conflict,
            invalid=InvalidRequest,
            unavailable=Unavailable,
            misconfigured=ConfigurationError,
        ),
    )

    def __init__(self, readers: AsyncEngine, writer: AsyncEngine, *, place: str, file: Path | None = None) -> None:
        super().__init__(readers, writer, place=place, file=file)
        self._directory = file.parent if file is not None else None
        self._sealer: Sealer | None = None

    @classmethod
    def at(cls, data_dir: Path, address: str | None) -> Self:
        made = super().at(data_dir, address)
        made._directory = data_dir
        return made

    @property
    def sealer(self) -> Sealer:
        """What values that are secret are sealed with: by keys in the data directory, beside the database or not."""
        if self._sealer is None:
            self._sealer = Sealer.at(self._directory) if self._directory else Sealer.of_one_process()
        return self._sealer

    async def seal_anew(self) -> int:
        """Seal everything with a new key, and forget the old ones. No server may run. Returns how many values there were."""
        if self._directory is None:
            raise ConfigurationError("there is no data directory to keep a new key in")
        self._sealer, count = renew(self._directory), 0
        async with self.write("seal stored values with a new key") as connection:
            for column in SEALED:
                rows = (await connection.execute(select(column.table.c.id, column).where(column.is_not(None)))).all()
                for id, stored in rows:
                    value = self._sealer.seal(self._sealer.open(stored))
                    change = update(column.table).where(column.table.c.id == id).values({column.name: value})
                    await connection.execute(change)
                    count += 1
        forget_old(self._directory)
        self._sealer = Sealer.at(self._directory)
        return count

    async def identity(self) -> str:
        """The id that this platform puts into the metadata of its sandboxes; created once."""
        async with self.write("read the platform's identity") as connection:
            query = select(facts.c.value).where(facts.c.name == "identity")
            known: str | None = (await connection.execute(query)).scalar_one_or_none()
            if known is None:
                known = f"plt-{secrets.token_hex(8)}"
                await connection.execute(insert(facts), {"name": "identity", "value": known})
            return known
