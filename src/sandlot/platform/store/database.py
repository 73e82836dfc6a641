"""The platform's database: opening it, bringing it to this version, and handing out connections."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, event, insert, inspect, make_url, select, text
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from sandlot.platform.errors import ConfigurationError, Unavailable
from sandlot.platform.store.errors import translated
from sandlot.platform.store.schema import REVISION, VERSION_TABLE, facts

POOL_WAIT_S = 30.0
MIGRATION_LOCK = 0x5A4D11
_DRIVERS = frozenset({"postgres", "postgresql", "postgresql+asyncpg"})


class Database:
    """A SQLite file of its own, or tables named `platform_...` in a PostgreSQL database that others may use too."""

    def __init__(self, readers: AsyncEngine, writer: AsyncEngine, *, file: Path | None = None) -> None:
        self._readers, self._writer, self._file = readers, writer, file

    @classmethod
    def sqlite(cls, file: Path) -> Database:
        url = URL.create("sqlite+aiosqlite", database=str(file))
        return cls(
            _sqlite(url, connections=4, begin="BEGIN"), _sqlite(url, connections=1, begin="BEGIN IMMEDIATE"), file=file
        )

    @classmethod
    def postgresql(cls, address: str) -> Database:
        """Raises `ConfigurationError`."""
        engine = create_async_engine(
            _postgresql_url(address),
            pool_size=10,
            max_overflow=0,
            pool_timeout=POOL_WAIT_S,
            pool_pre_ping=True,
            hide_parameters=True,
            connect_args={"timeout": 10.0, "command_timeout": 30.0},
        )
        return cls(engine, engine)

    @classmethod
    def at(cls, data_dir: Path, address: str | None) -> Database:
        return cls.postgresql(address) if address else cls.sqlite(data_dir / "platform.db")

    @asynccontextmanager
    async def read(self, doing: str) -> AsyncIterator[AsyncConnection]:
        with translated(doing):
            async with self._readers.connect() as connection:
                yield connection

    @asynccontextmanager
    async def write(self, doing: str) -> AsyncIterator[AsyncConnection]:
        """One transaction: committed at the end, rolled back on any error."""
        with translated(doing):
            async with self._writer.begin() as connection:
                yield connection

    async def migrate(self) -> None:
        """Bring the database to this version; quick when it is there already."""
        with translated(f"open the platform's database at {self._writer.url.render_as_string(hide_password=True)}"):
            if self._file is not None:
                _make_private(self._file)
            async with self._readers.connect() as connection:
                current = await connection.run_sync(_revision)
            if current == REVISION:
                return
            async with self._writer.begin() as connection:
                await connection.run_sync(_upgrade)

    async def identity(self) -> str:
        """The name by which this platform marks its sandboxes at providers; made once, kept for good."""
        async with self.write("read the platform's identity") as connection:
            query = select(facts.c.value).where(facts.c.name == "identity")
            known: str | None = (await connection.execute(query)).scalar_one_or_none()
            if known is None:
                known = f"plt-{secrets.token_hex(8)}"
                await connection.execute(insert(facts), {"name": "identity", "value": known})
            return known

    async def close(self) -> None:
        await asyncio.gather(*(engine.dispose() for engine in {self._readers, self._writer}))


def _sqlite(url: URL, *, connections: int, begin: str) -> AsyncEngine:
    engine = create_async_engine(
        url,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=POOL_WAIT_S,
        hide_parameters=True,
        connect_args={"timeout": 5.0},
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


def _postgresql_url(address: str) -> URL:
    try:
        url = make_url(address)
        url.port  # noqa: B018 - parsed on access
    except (ArgumentError, ValueError):
        # The parser's own error may quote the address, and with it the password.
        raise ConfigurationError(
            "the database address cannot be read; it should look like postgresql://user:password@host:5432/name"
        ) from None
    if url.drivername not in _DRIVERS:
        raise ConfigurationError(f"databases of kind {url.drivername!r} are not supported; use postgresql://")
    query = dict(url.query)
    if "sslmode" in query:  # what libpq calls it
        query["ssl"] = query.pop("sslmode")
    return url.set(drivername="postgresql+asyncpg", query=query)


def _make_private(file: Path) -> None:
    """The file holds what users gave their sandboxes. SQLite gives the files beside it the same mode."""
    file.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    if connection.dialect.name == "postgresql":  # two servers that start at once: the second finds it done
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
    config = Config()
    config.set_main_option("script_location", "sandlot.platform.store:migrations")
    current = _revision(connection)
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if current is not None and current not in known:
        raise Unavailable(
            f"the platform's database was made by a newer version of Sandlot (revision {current}); run that version"
        )
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found: str | None = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    return found
