"""A database: opening it, bringing it to this version, and handing out connections for reading and writing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from sqlalchemy import URL, Column, Connection, event, inspect, make_url, select, text, update
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from sandlot.sql.errors import Faults, translated
from sandlot.sql.sealing import Sealer

BUSY_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 10.0
COMMAND_TIMEOUT_S = 30.0
POOL_WAIT_S = 30.0
_DRIVERS = frozenset({"postgres", "postgresql", "postgresql+asyncpg"})


@dataclass(frozen=True)
class Tables:
    """What one half keeps, where its migrations are, and how it speaks of failures."""

    name: str  # for people, as in "the database"
    file: str  # in the data directory, with SQLite
    migrations: str
    revision: str
    version_table: str
    lock: int  # any number, as long as every Sandlot uses the same one
    faults: Faults
    sealed: tuple[Column[Any], ...] = ()  # whose values are secret, and are kept sealed; their tables have an `id`


class Database:
    """A SQLite file or a PostgreSQL database. SQLite has one connection that writes, so writers queue here, not in SQLite."""

    tables: ClassVar[Tables]

    def __init__(self, readers: AsyncEngine, writer: AsyncEngine, *, place: str, file: Path | None = None) -> None:
        self._readers = readers
        self._writer = writer
        self._file = file
        self.place = f"{self.tables.name} at {place}"  # for people; holds no password
        self._directory = file.parent if file is not None else None
        self._sealer: Sealer | None = None

    @property
    def is_shared(self) -> bool:
        """Whether other processes may be working with it."""
        return self._file is None

    @classmethod
    def sqlite(cls, file: Path) -> Self:
        url = URL.create("sqlite+aiosqlite", database=str(file))
        reading, writing = (
            _sqlite(url, connections=4, begin="BEGIN"),
            _sqlite(url, connections=1, begin="BEGIN IMMEDIATE"),
        )
        return cls(reading, writing, place=str(file), file=file)

    @classmethod
    def postgresql(cls, address: str) -> Self:
        """From an address like `postgresql://user:password@host/name`. Raises what is said when settings are wrong."""
        url = _postgresql_url(address, cls.tables.faults)
        engine = create_async_engine(
            url,
            pool_size=10,
            max_overflow=0,
            pool_timeout=POOL_WAIT_S,
            pool_pre_ping=True,
            hide_parameters=True,
            connect_args={"timeout": CONNECT_TIMEOUT_S, "command_timeout": COMMAND_TIMEOUT_S},
        )
        shown = url.set(drivername="postgresql", query={}).render_as_string(hide_password=True)
        return cls(engine, engine, place=shown)

    @classmethod
    def at(cls, data_dir: Path, address: str | None) -> Self:
        """What the settings say: PostgreSQL at `address`, else SQLite in the data directory."""
        made = cls.postgresql(address) if address else cls.sqlite(data_dir / cls.tables.file)
        made._directory = data_dir
        return made

    @property
    def sealer(self) -> Sealer:
        """What values that are secret are sealed with: by keys in the data directory, beside the database or not."""
        if self._sealer is None:
            fault = self.tables.faults.misconfigured
            self._sealer = Sealer.at(self._directory, fault) if self._directory else Sealer.of_one_process(fault)
        return self._sealer

    async def seal_anew(self) -> int:
        """Seal everything with the newest key. No server may run. Returns how many values there were."""
        count = 0
        if self._directory is not None:
            self._sealer = None  # the keys are read again
        async with self.write("seal stored values with a new key") as connection:
            for column in self.tables.sealed:
                rows = (await connection.execute(select(column.table.c.id, column).where(column.is_not(None)))).all()
                for id, stored in rows:
                    value = self.sealer.seal(self.sealer.open(stored))
                    change = update(column.table).where(column.table.c.id == id).values({column.name: value})
                    await connection.execute(change)
                    count += 1
        return count

    @asynccontextmanager
    async def read(self, doing: str) -> AsyncIterator[AsyncConnection]:
        with translated(self.tables.faults, doing, self.tables.name):
            async with self._readers.connect() as connection:
                yield connection

    @asynccontextmanager
    async def write(self, doing: str) -> AsyncIterator[AsyncConnection]:
        """One transaction: committed at the end, rolled back on any error."""
        with translated(self.tables.faults, doing, self.tables.name):
            async with self._writer.begin() as connection:
                yield connection

    async def migrate(self) -> None:
        """Bring the database to this version; quick when it is there already."""
        with translated(self.tables.faults, f"open {self.tables.name}", self.place):
            if self._file is not None:
                _make_private(self._file)
            async with self._readers.connect() as connection:
                current = await connection.run_sync(self._revision)
            if current == self.tables.revision:
                return
            async with self._writer.begin() as connection:
                await connection.run_sync(self._upgrade)

    def _revision(self, connection: Connection) -> str | None:
        if not inspect(connection).has_table(self.tables.version_table):
            return None
        found: str | None = connection.execute(text(f"SELECT version_num FROM {self.tables.version_table}")).scalar()
        return found

    def _upgrade(self, connection: Connection) -> None:
        from alembic import command
        from alembic.config import Config
        from alembic.script import ScriptDirectory

        if connection.dialect.name == "postgresql":  # two servers that start at once: the second finds it done
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": self.tables.lock})
        config = Config()
        config.set_main_option("script_location", self.tables.migrations)
        current = self._revision(connection)
        known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
        if current is not None and current not in known:
            raise self.tables.faults.unavailable(
                f"{self.place} was made by a newer version of Sandlot (revision {current}); "
                "run that version, or restore a backup from before it"
            )
        config.attributes["connection"] = connection
        command.upgrade(config, "head")

    async def close(self) -> None:
        await asyncio.gather(*(engine.dispose() for engine in {self._readers, self._writer}))


def _sqlite(url: URL, *, connections: int, begin: str) -> AsyncEngine:
    engine = create_async_engine(
        url,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=POOL_WAIT_S,
        hide_parameters=True,
        connect_args={"timeout": BUSY_TIMEOUT_S},
    )

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # the driver would begin late, and not at all before CREATE TABLE
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
            cursor = connection.cursor()
            cursor.execute(f"PRAGMA {pragma}")
            cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def start(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _postgresql_url(address: str, faults: Faults) -> URL:
    try:
        url = make_url(address)
        url.port  # noqa: B018 - parsed on access
    except (ArgumentError, ValueError):
        # The parser's own error may quote the address, and with it the password.
        raise faults.misconfigured(
            "the database address cannot be read; it should look like postgresql://user:password@host:5432/name"
        ) from None
    if url.drivername not in _DRIVERS:
        raise faults.misconfigured(
            f"databases of kind {url.drivername!r} are not supported; use postgresql://, or unset it for SQLite"
        )
    query = dict(url.query)
    if "sslmode" in query:  # what libpq calls it
        query["ssl"] = query.pop("sslmode")
    return url.set(drivername="postgresql+asyncpg", query=query)


def _make_private(file: Path) -> None:
    """The file holds tokens, and what users gave their sandboxes. SQLite gives the files beside it the same mode."""
    file.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
