"""How a database is opened and brought to this version, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text
from tests.databases import KINDS, nothing_in

from sandlot.engine.core.errors import InvalidRequest, Unavailable
from sandlot.engine.core.model import Team
from sandlot.engine.store import Database, SqlAccess
from sandlot.engine.store.schema import REVISION, metadata

TEAM = Team(id="team_1", name="one", created_at=datetime(2030, 5, 1, 12, 30, 15, 123456, tzinfo=UTC))


@pytest.fixture(params=KINDS)
async def empty(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """A database in which nothing was made yet."""
    async with nothing_in(Database, request, tmp_path) as found:
        yield found


@pytest.fixture
async def database(empty: Database) -> Database:
    await empty.migrate()
    await SqlAccess(empty).add_team(TEAM)
    return empty


class TestMigrations:
    async def test_lead_to_exactly_the_tables_the_code_expects(self, database: Database) -> None:
        async with database.read("compare") as connection:
            differences = await connection.run_sync(
                lambda sync: compare_metadata(MigrationContext.configure(sync), metadata)
            )
        assert differences == []

    async def test_running_again_keeps_the_rows(self, database: Database) -> None:
        await database.migrate()
        assert await SqlAccess(database).teams() == [TEAM]

    async def test_several_servers_that_start_at_once_all_find_it_done(self, empty: Database) -> None:
        await asyncio.gather(*(empty.migrate() for _ in range(4)))
        assert await SqlAccess(empty).teams() == []

    async def test_a_database_of_a_newer_version_is_refused_with_what_to_do(self, database: Database) -> None:
        async with database.write("pretend") as connection:
            await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        with pytest.raises(Unavailable, match="newer version of Sandlot"):
            await database.migrate()

    def test_the_revision_in_the_schema_is_the_newest_migration(self) -> None:
        config = Config()
        config.set_main_option("script_location", "sandlot.engine.store:migrations")
        assert ScriptDirectory.from_config(config).get_current_head() == REVISION


class TestSqliteFile:
    async def test_files_are_private(self, tmp_path: Path) -> None:
        database = Database.at(tmp_path / "new", None)
        await database.migrate()
        await SqlAccess(database).add_team(TEAM)
        files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "new").iterdir()}
        await database.close()
        assert files == dict.fromkeys(("sandlot.db", "sandlot.db-wal", "sandlot.db-shm"), 0o600)

    async def test_a_current_database_opens_without_loading_the_migration_tool(self, tmp_path: Path) -> None:
        first = Database.sqlite(tmp_path / "sandlot.db")
        await first.migrate()
        await first.close()
        code = (
            "import asyncio, sys, pathlib\n"
            "from sandlot.engine.store import Database\n"
            "async def main():\n"
            f"    database = Database.sqlite(pathlib.Path({str(tmp_path / 'sandlot.db')!r}))\n"
            "    await database.migrate()\n"
            "    await database.close()\n"
            "    sys.exit('alembic' in sys.modules)\n"
            "asyncio.run(main())\n"
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, env={"PYTHONPATH": ":".join(sys.path)}
        )
        assert await process.wait() == 0

    async def test_a_file_that_is_no_database_says_so(self, tmp_path: Path) -> None:
        (tmp_path / "sandlot.db").write_bytes(b"something else entirely" * 100)
        database = Database.sqlite(tmp_path / "sandlot.db")
        with pytest.raises(Unavailable, match="not a database"):
            await database.migrate()
        await database.close()

    async def test_a_lock_held_by_somebody_else_says_so(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sandlot.sql.database.BUSY_TIMEOUT_S", 0.1)
        database = Database.sqlite(tmp_path / "sandlot.db")
        await database.migrate()
        holder = sqlite3.connect(tmp_path / "sandlot.db", isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
        try:
            with pytest.raises(Unavailable, match="locked by another process"):
                await SqlAccess(database).add_team(TEAM)
        finally:
            holder.close()
        await SqlAccess(database).add_team(TEAM)
        await database.close()

    async def test_reads_go_on_while_a_write_is_open(self, tmp_path: Path) -> None:
        database = Database.sqlite(tmp_path / "sandlot.db")
        await database.migrate()
        async with database.write("hold") as connection:
            await connection.execute(text("DELETE FROM teams"))
            assert await SqlAccess(database).teams() == []
        await database.close()


class TestPostgresqlAddress:
    async def test_a_server_that_is_not_there_says_so_without_the_password(self) -> None:
        database = Database.postgresql("postgresql://user:hunter2@127.0.0.1:1/name")
        with pytest.raises(Unavailable, match="cannot be reached") as failure:
            await database.migrate()
        await database.close()
        assert "hunter2" not in _everything(failure.value)
        assert "127.0.0.1:1/name" in str(failure.value)

    async def test_a_wrong_password_says_so_without_it(self, postgresql_address: str) -> None:
        database = Database.postgresql(postgresql_address.replace("tests:p", "tests:hunter2"))
        with pytest.raises(Unavailable, match="refuses this user or password") as failure:
            await database.migrate()
        await database.close()
        assert "hunter2" not in _everything(failure.value)

    async def test_a_database_that_is_not_there_says_so(self, postgresql_address: str) -> None:
        database = Database.postgresql(postgresql_address.replace("/postgres", "/nothing"))
        with pytest.raises(Unavailable, match="no such database"):
            await database.migrate()
        await database.close()

    async def test_what_libpq_calls_sslmode_is_understood(self, postgresql_address: str) -> None:
        database = Database.postgresql(f"{postgresql_address}?sslmode=disable".replace("postgresql:", "postgres:"))
        async with database.read("ask for the encryption") as connection:
            encrypted = await connection.scalar(text("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"))
        await database.close()
        assert encrypted is False

    async def test_connections_that_the_server_ended_are_replaced(self, postgresql_address: str) -> None:
        database, killer = (Database.postgresql(postgresql_address) for _ in range(2))

        async def use_two() -> None:
            async with database.read("use one") as one, database.read("and another") as another:
                assert await one.scalar(text("SELECT 1")) == await another.scalar(text("SELECT 1")) == 1

        await use_two()
        async with killer.read("end the others") as connection:
            ended = await connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE pid <> pg_backend_pid() AND usename = 'tests' AND backend_type = 'client backend'"
                )
            )
            assert len(ended.all()) == 2
        await use_two()
        await database.close()
        await killer.close()

    async def test_a_server_that_goes_away_in_the_middle_says_so(self, postgresql_address: str) -> None:
        database = Database.postgresql(postgresql_address)
        with pytest.raises(Unavailable, match="could not do this: the database"):
            async with database.write("do this") as connection:
                await connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
        await database.close()

    @pytest.mark.parametrize(
        "address", ["nonsense hunter2", "postgresql://user:hunter2@host:port/x", "mysql://user:hunter2@host/x"]
    )
    def test_an_address_that_cannot_be_used_is_refused_without_the_password(self, address: str) -> None:
        with pytest.raises(InvalidRequest) as failure:
            Database.postgresql(address)
        assert "hunter2" not in _everything(failure.value)


def _everything(error: BaseException | None) -> str:
    """All that a log would show of an error: its own text and that of its causes."""
    texts = []
    while error is not None:
        texts.append(repr(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(texts)
