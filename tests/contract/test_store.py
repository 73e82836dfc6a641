"""What every store does, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text
from tests.services import postgresql

from sandlot.engine.errors import Conflict, EngineError, InvalidRequest, Unavailable
from sandlot.engine.model import (
    Isolation,
    Key,
    Machine,
    NetworkPolicy,
    OnTimeout,
    PauseMode,
    Resources,
    Sandbox,
    State,
    Team,
    Template,
)
from sandlot.engine.store import Database, SqlAccess, SqlSandboxes, SqlTemplates
from sandlot.engine.store.schema import REVISION, metadata

NOW = datetime(2030, 5, 1, 12, 30, 15, 123456, tzinfo=UTC)
TEAM = Team(id="team_1", name="one", created_at=NOW)
OTHER = Team(id="team_2", name="two", created_at=NOW + timedelta(seconds=1))


@pytest.fixture(scope="session")
def postgresql_address() -> Iterator[str]:
    with postgresql() as address:
        yield address


@pytest.fixture(params=["sqlite", "postgresql"])
async def empty(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """A database in which nothing was made yet."""
    if request.param == "sqlite":
        database = Database.sqlite(tmp_path / "sandlot.db")
    else:
        database = Database.postgresql(request.getfixturevalue("postgresql_address"))
        async with database.write("start afresh") as connection:
            await connection.execute(text("DROP SCHEMA public CASCADE"))
            await connection.execute(text("CREATE SCHEMA public"))
    yield database
    await database.close()


@pytest.fixture
async def database(empty: Database) -> Database:
    await empty.migrate()
    access = SqlAccess(empty)
    await access.add_team(TEAM)
    await access.add_team(OTHER)
    return empty


@pytest.fixture
def sandboxes(database: Database) -> SqlSandboxes:
    return SqlSandboxes(database)


@pytest.fixture
def templates(database: Database) -> SqlTemplates:
    return SqlTemplates(database)


@pytest.fixture
def access(database: Database) -> SqlAccess:
    return SqlAccess(database)


def a_sandbox(id: str = "i1", **changes: object) -> Sandbox:
    sandbox = Sandbox(
        id=id,
        team_id=TEAM.id,
        template_id="t1",
        template_name="base",
        state=State.RUNNING,
        runtime="gvisor",
        node="local",
        resources=Resources(),
        created_at=NOW,
        started_at=NOW,
        end_at=NOW + timedelta(minutes=5),
        envd_version="0.6.13",
    )
    return replace(sandbox, **changes)  # type: ignore[arg-type]


def a_template(id: str = "t1", **changes: object) -> Template:
    template = Template(
        id=id, team_id=None, name="base", layers=("a", "b"), build_id="b1", created_at=NOW, updated_at=NOW
    )
    return replace(template, **changes)  # type: ignore[arg-type]


FULL = a_sandbox(
    "ifull",
    state=State.PAUSED,
    resources=Resources(cpu_count=3, memory_mb=512, disk_mb=100, pids=64),
    machine=Machine(
        sandbox_id="ifull",
        runtime="gvisor",
        isolation=Isolation.SENTRY,
        address="10.1.2.3",
        handle={"slot": 4, "nested": {"list": [1, None, "x"]}},
    ),
    metadata={"a.b": 'quo"te', "ü": "ß", "": "empty name", "$": "'; DROP TABLE sandboxes --"},
    env_vars={"PATH": "/bin", "MULTI": "line\nline"},
    network=NetworkPolicy(
        allow_out=("10.0.0.0/8", "*.example.com"),
        deny_out=("0.0.0.0/0",),
        allow_internet=False,
        allow_public_traffic=False,
        mask_request_host="host:${PORT}",
        https_ports=(8443,),
        dns_servers=(),
    ),
    envd_token="e" * 64,
    traffic_token="t" * 64,
    timeout_s=77,
    on_timeout=OnTimeout.PAUSE,
    auto_resume=True,
    pause_memory=False,
    pause_mode=PauseMode.FILESYSTEM,
    idempotency_key="key-1",
    request_digest="d" * 64,
    ended_at=NOW,
    end_reason="killed",
)


class TestSandboxes:
    @pytest.mark.parametrize("sandbox", [a_sandbox(), FULL], ids=["smallest", "every field"])
    async def test_what_was_added_comes_back_the_same(self, sandboxes: SqlSandboxes, sandbox: Sandbox) -> None:
        await sandboxes.add(sandbox)
        assert await sandboxes.get(sandbox.id) == sandbox

    async def test_what_was_swapped_comes_back_the_same_with_the_next_revision(self, sandboxes: SqlSandboxes) -> None:
        old = a_sandbox("ifull")
        await sandboxes.add(old)
        written = await sandboxes.swap(old, FULL)
        assert written == replace(FULL, revision=1)
        assert await sandboxes.get("ifull") == written

    async def test_an_unknown_id_is_none(self, sandboxes: SqlSandboxes) -> None:
        assert await sandboxes.get("nobody") is None

    async def test_times_in_other_zones_come_back_in_utc(self, sandboxes: SqlSandboxes) -> None:
        elsewhere = NOW.astimezone(timezone(timedelta(hours=9)))
        await sandboxes.add(a_sandbox(end_at=elsewhere))
        found = await sandboxes.get("i1")
        assert found is not None
        assert found.end_at == NOW
        assert found.end_at.utcoffset() == timedelta(0)

    async def test_a_taken_id_is_a_conflict(self, sandboxes: SqlSandboxes) -> None:
        await sandboxes.add(a_sandbox())
        with pytest.raises(Conflict):
            await sandboxes.add(a_sandbox())

    async def test_an_idempotency_key_is_taken_once_per_team(self, sandboxes: SqlSandboxes) -> None:
        await sandboxes.add(a_sandbox("i1", idempotency_key="k"))
        await sandboxes.add(a_sandbox("i2", idempotency_key="k", team_id=OTHER.id))
        with pytest.raises(Conflict):
            await sandboxes.add(a_sandbox("i3", idempotency_key="k"))
        found = await sandboxes.by_idempotency_key(TEAM.id, "k")
        assert found is not None
        assert found.id == "i1"
        assert await sandboxes.by_idempotency_key(TEAM.id, "other") is None

    async def test_many_rows_may_have_no_idempotency_key(self, sandboxes: SqlSandboxes) -> None:
        await sandboxes.add(a_sandbox("i1"))
        await sandboxes.add(a_sandbox("i2"))
        assert await sandboxes.count() == 2

    async def test_a_sandbox_of_a_team_that_does_not_exist_is_refused(self, sandboxes: SqlSandboxes) -> None:
        with pytest.raises(Conflict):
            await sandboxes.add(a_sandbox(team_id="nobody"))

    async def test_a_swap_from_an_old_revision_is_a_conflict_and_changes_nothing(self, sandboxes: SqlSandboxes) -> None:
        old = a_sandbox()
        await sandboxes.add(old)
        first = await sandboxes.swap(old, replace(old, end_reason="first"))
        with pytest.raises(Conflict):
            await sandboxes.swap(old, replace(old, end_reason="second"))
        assert await sandboxes.get("i1") == first

    async def test_a_swap_of_a_row_that_is_gone_is_a_conflict(self, sandboxes: SqlSandboxes) -> None:
        with pytest.raises(Conflict):
            await sandboxes.swap(a_sandbox(), a_sandbox())

    async def test_of_many_swaps_at_once_one_wins(self, sandboxes: SqlSandboxes) -> None:
        old = a_sandbox()
        await sandboxes.add(old)
        swaps = (sandboxes.swap(old, replace(old, end_reason=str(n))) for n in range(20))
        results = await asyncio.gather(*swaps, return_exceptions=True)
        (won,) = [result for result in results if isinstance(result, Sandbox)]
        assert sum(isinstance(result, Conflict) for result in results) == 19
        assert await sandboxes.get("i1") == won

    async def test_of_many_adds_with_one_key_at_once_one_wins(self, sandboxes: SqlSandboxes) -> None:
        adds = (sandboxes.add(a_sandbox(f"i{n}", idempotency_key="k")) for n in range(20))
        results = await asyncio.gather(*adds, return_exceptions=True)
        assert results.count(None) == 1
        assert sum(isinstance(result, Conflict) for result in results) == 19

    async def test_metadata_filters_need_every_pair_and_take_any_name(self, sandboxes: SqlSandboxes) -> None:
        await sandboxes.add(FULL)
        await sandboxes.add(a_sandbox("i2", metadata={"a": "1", "b": "2"}))
        await sandboxes.add(a_sandbox("i3", metadata={"a": "1"}))

        async def ids(**pairs: str) -> set[str]:
            return {sandbox.id for sandbox in await sandboxes.query(metadata=pairs)}

        assert await ids(a="1") == {"i2", "i3"}
        assert await ids(a="1", b="2") == {"i2"}
        assert await ids(a="2") == set()
        assert await ids(A="1") == set()
        assert await ids() == {"ifull", "i2", "i3"}
        for name, value in FULL.metadata.items():
            assert await ids(**{name: value}) == {"ifull"}, name
        assert await ids(**{'a"': "1"}) == set()
        assert await ids(**{"a'": "' OR '1'='1"}) == set()

    async def test_filters_by_team_state_template_and_start(self, sandboxes: SqlSandboxes) -> None:
        await sandboxes.add(a_sandbox("i1"))
        await sandboxes.add(a_sandbox("i2", team_id=OTHER.id, template_id="t2", template_name="mine"))
        await sandboxes.add(a_sandbox("i3", state=State.ENDED, started_at=NOW + timedelta(seconds=1)))

        async def ids(**filters: object) -> set[str]:
            return {sandbox.id for sandbox in await sandboxes.query(**filters)}  # type: ignore[arg-type]

        assert await ids(team_id=TEAM.id) == {"i1", "i3"}
        assert await ids(states=[State.RUNNING]) == {"i1", "i2"}
        assert await ids(states=[]) == set()
        assert await ids(template="t2") == await ids(template="mine") == {"i2"}
        assert await ids(started_after=NOW) == {"i1", "i2", "i3"}
        assert await ids(started_after=NOW + timedelta(milliseconds=1)) == {"i3"}
        assert await sandboxes.count(team_id=TEAM.id, states=[State.RUNNING]) == 1
        assert await sandboxes.count(states=[State.RUNNING, State.ENDED]) == 3

    @pytest.mark.parametrize("descending", [True, False])
    async def test_pages_show_every_row_once_also_those_of_one_moment(
        self, sandboxes: SqlSandboxes, descending: bool
    ) -> None:
        for number in range(7):
            await sandboxes.add(a_sandbox(f"i{number}", started_at=NOW + timedelta(microseconds=number // 3)))
        seen: list[Sandbox] = []
        while page := await sandboxes.query(
            descending=descending, limit=2, after=(seen[-1].started_at, seen[-1].id) if seen else None
        ):
            assert len(page) <= 2
            seen += page
        assert [row.id for row in seen] == sorted((f"i{n}" for n in range(7)), reverse=descending)

    async def test_expired_are_running_and_past_their_deadline_oldest_first(self, sandboxes: SqlSandboxes) -> None:
        await sandboxes.add(a_sandbox("i1", end_at=NOW))
        await sandboxes.add(a_sandbox("i2", end_at=NOW - timedelta(seconds=1)))
        await sandboxes.add(a_sandbox("i3", end_at=NOW + timedelta(microseconds=1)))
        await sandboxes.add(a_sandbox("i4", end_at=NOW - timedelta(days=1), state=State.STOPPING))
        assert [row.id for row in await sandboxes.expired(NOW)] == ["i2", "i1"]
        assert [row.id for row in await sandboxes.expired(NOW, limit=1)] == ["i2"]

    async def test_purge_forgets_only_what_ended_long_ago(self, sandboxes: SqlSandboxes) -> None:
        await sandboxes.add(a_sandbox("i1"))
        await sandboxes.add(a_sandbox("i2", state=State.ENDED, ended_at=NOW))
        await sandboxes.add(a_sandbox("i3", state=State.ENDED, ended_at=NOW - timedelta(seconds=1)))
        assert await sandboxes.purge(NOW) == 1
        assert {row.id for row in await sandboxes.query()} == {"i1", "i2"}

    @pytest.mark.parametrize("hostile", ["a\x00b", "\ud800", "x" * 100_000], ids=["nul", "surrogate", "long"])
    async def test_hostile_text_is_found_not_stored_or_refused_as_a_bad_request(
        self, sandboxes: SqlSandboxes, hostile: str
    ) -> None:
        async def answers() -> None:
            assert await sandboxes.get(hostile) is None

        async def filters() -> None:
            assert await sandboxes.query(metadata={hostile: hostile}) == []

        async def keeps() -> None:
            sandbox = a_sandbox(metadata={hostile: hostile}, env_vars={"x": hostile})
            await sandboxes.add(sandbox)
            assert await sandboxes.get("i1") == sandbox

        for attempt in (answers, filters, keeps):
            try:
                await attempt()
            except EngineError as error:
                assert isinstance(error, InvalidRequest)
                assert hostile not in str(error)
        assert await sandboxes.count() <= 1

    async def test_callers_that_go_away_in_the_middle_do_not_use_up_connections(self, sandboxes: SqlSandboxes) -> None:
        old = a_sandbox()
        await sandboxes.add(old)
        for step in range(40):
            task = asyncio.ensure_future(
                sandboxes.query() if step % 2 else sandboxes.swap(old, replace(old, end_reason=str(step)))
            )
            for _ in range(step // 2):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()
            old = (await sandboxes.query())[0]
        await asyncio.gather(*(sandboxes.get("i1") for _ in range(20)))
        await sandboxes.swap(old, old)


class TestTemplates:
    async def test_what_was_put_comes_back_the_same_and_is_replaced_by_id(self, templates: SqlTemplates) -> None:
        template = a_template(
            team_id=TEAM.id,
            runtime="container",
            resources=Resources(memory_mb=256),
            env={"A": "b"},
            start_cmd="run me",
            ready_cmd="true",
            default_user="root",
            public=True,
            last_spawned_at=NOW,
        )
        await templates.put(template)
        assert await templates.resolve(TEAM.id, "t1") == template
        newer = replace(template, layers=("c",), build_id="b2", start_cmd=None)
        await templates.put(newer)
        assert await templates.resolve(TEAM.id, "base") == newer
        assert await templates.list(TEAM.id) == [newer]

    async def test_a_teams_own_comes_before_a_built_in_and_anothers_public_one(self, templates: SqlTemplates) -> None:
        await templates.put(a_template("t1"))
        await templates.put(a_template("t2", team_id=TEAM.id))
        await templates.put(a_template("t3", team_id=OTHER.id, public=True))

        async def resolved(team_id: str | None, ref: str) -> str | None:
            found = await templates.resolve(team_id, ref)
            return found.id if found else None

        assert await resolved(TEAM.id, "base") == "t2"
        assert await resolved(OTHER.id, "base") == "t3"
        assert await resolved(None, "base") == "t1"
        assert await resolved(TEAM.id, "t3") == "t3"
        assert await resolved(OTHER.id, "t2") is None
        assert await resolved(TEAM.id, "nothing") is None
        assert {template.id for template in await templates.list(OTHER.id)} == {"t1", "t3"}

    async def test_a_name_is_taken_once_per_team_and_once_among_the_built_in(self, templates: SqlTemplates) -> None:
        await templates.put(a_template("t1"))
        with pytest.raises(Conflict):
            await templates.put(a_template("t2"))
        await templates.put(a_template("t3", team_id=TEAM.id))
        with pytest.raises(Conflict):
            await templates.put(a_template("t4", team_id=TEAM.id))

    async def test_spawned_counts_and_keeps_the_latest_time(self, templates: SqlTemplates) -> None:
        await templates.put(a_template())
        await asyncio.gather(*(templates.spawned("t1", NOW + timedelta(seconds=n)) for n in (1, 3, 2)))
        found = await templates.resolve(None, "t1")
        assert found is not None
        assert (found.spawn_count, found.last_spawned_at) == (3, NOW + timedelta(seconds=3))

    async def test_snapshots_are_listed_apart_newest_first_and_in_pages(self, templates: SqlTemplates) -> None:
        built = a_template()
        await templates.put(built)
        for number in range(5):  # two of one moment
            at = NOW + timedelta(seconds=number // 2)
            made = replace(
                built, id=f"snp{number}", name=f"snap-{number}", team_id=TEAM.id, public=False, created_at=at
            )
            await templates.put(replace(made, checkpoint=f"snp{number}", source=f"i{number % 2}", node="local"))
        theirs = replace(built, id="snpx", name="x", team_id=OTHER.id, public=False, source="i9", checkpoint="snpx")
        await templates.put(theirs)
        newest_first = ["snp4", "snp3", "snp2", "snp1", "snp0"]
        assert [each.id for each in await templates.snapshots(TEAM.id)] == newest_first
        assert [each.id for each in await templates.snapshots(TEAM.id, source="i1")] == ["snp3", "snp1"]
        assert [each.id for each in await templates.snapshots(TEAM.id, name="snap-2")] == ["snp2"]
        assert [each.id for each in await templates.snapshots(TEAM.id, name="snp2")] == ["snp2"]
        assert len(await templates.snapshots(None)) == 6
        seen: list[str] = []
        after = None
        while page := await templates.snapshots(TEAM.id, limit=2, after=after):
            seen += [each.id for each in page]
            after = (page[-1].created_at, page[-1].id)
        assert seen == newest_first
        assert not {each.id for each in await templates.list(TEAM.id)} & {*newest_first, "snpx"}
        found = await templates.resolve(TEAM.id, "snap-3")
        assert found is not None and (found.checkpoint, found.source, found.node) == ("snp3", "i1", "local")

    async def test_delete_says_whether_there_was_one(self, templates: SqlTemplates) -> None:
        await templates.put(a_template())
        assert await templates.delete("t1") is True
        assert await templates.delete("t1") is False


class TestAccess:
    KEY = Key(id="k1", team_id=TEAM.id, name="first", digest="d1", hint="e2b_…", created_at=NOW)

    async def test_teams_come_oldest_first(self, access: SqlAccess) -> None:
        assert await access.teams() == [TEAM, OTHER]

    async def test_keys_are_found_by_digest_and_listed_by_team(self, access: SqlAccess) -> None:
        other = replace(self.KEY, id="k2", digest="d2", team_id=OTHER.id)
        await access.add_key(self.KEY)
        await access.add_key(other)
        assert await access.key_by_digest("d1") == self.KEY
        assert await access.key_by_digest("d3") is None
        assert await access.keys(OTHER.id) == [other]
        assert len(await access.keys()) == 2

    async def test_a_digest_is_taken_once(self, access: SqlAccess) -> None:
        await access.add_key(self.KEY)
        with pytest.raises(Conflict):
            await access.add_key(replace(self.KEY, id="k2"))

    async def test_a_key_is_revoked_once_and_keeps_the_time(self, access: SqlAccess) -> None:
        await access.add_key(self.KEY)
        assert await access.revoke_key("k1", NOW) is True
        assert await access.revoke_key("k1", NOW + timedelta(days=1)) is False
        assert await access.revoke_key("nobody", NOW) is False
        assert (await access.keys())[0].revoked_at == NOW

    async def test_touch_notes_the_last_use(self, access: SqlAccess) -> None:
        await access.add_key(self.KEY)
        await access.touch_key("k1", NOW)
        assert (await access.keys())[0].last_used_at == NOW


class TestMigrations:
    async def test_lead_to_exactly_the_tables_the_code_expects(self, database: Database) -> None:
        async with database.read("compare") as connection:
            differences = await connection.run_sync(
                lambda sync: compare_metadata(MigrationContext.configure(sync), metadata)
            )
        assert differences == []

    async def test_running_again_keeps_the_rows(self, database: Database) -> None:
        await database.migrate()
        assert await SqlAccess(database).teams() == [TEAM, OTHER]

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
