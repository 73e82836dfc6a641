"""What every store does, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from tests.databases import KINDS, nothing_in

from sandlot.engine.core.errors import Conflict, EngineError, InvalidRequest
from sandlot.engine.core.model import (
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

NOW = datetime(2030, 5, 1, 12, 30, 15, 123456, tzinfo=UTC)
TEAM = Team(id="team_1", name="one", created_at=NOW)
OTHER = Team(id="team_2", name="two", created_at=NOW + timedelta(seconds=1))


@pytest.fixture(params=KINDS)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with nothing_in(Database, request, tmp_path) as found:
        await found.migrate()
        access = SqlAccess(found)
        await access.add_team(TEAM)
        await access.add_team(OTHER)
        yield found


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

    async def test_one_too_many_is_not_added_and_only_the_states_that_count_are_counted(
        self, sandboxes: SqlSandboxes
    ) -> None:
        holding = (State.CREATING, State.RUNNING)
        await sandboxes.add(a_sandbox("i1", state=State.RUNNING))
        await sandboxes.add(a_sandbox("i2", state=State.PAUSED))
        assert await sandboxes.add(a_sandbox("i3", state=State.CREATING), most=2, counting=holding)
        assert not await sandboxes.add(a_sandbox("i4"), most=2, counting=holding)
        assert await sandboxes.get("i4") is None and await sandboxes.count() == 3

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
        assert results.count(True) == 1
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

    async def test_a_name_of_a_team_is_taken_once(self, access: SqlAccess) -> None:
        with pytest.raises(Conflict, match="'one' already"):
            await access.add_team(replace(TEAM, id="team_3"))

    async def test_a_team_goes_with_its_keys_and_history_once_nothing_else_is_left(
        self, access: SqlAccess, sandboxes: SqlSandboxes, templates: SqlTemplates
    ) -> None:
        await access.add_key(replace(self.KEY, team_id=OTHER.id))
        await access.add_key(replace(self.KEY, id="k2", digest="d2"))
        await templates.put(a_template("t9", name="theirs", team_id=OTHER.id))
        live = a_sandbox(team_id=OTHER.id)
        await sandboxes.add(live)
        with pytest.raises(Conflict, match="sandboxes"):
            await access.remove_team(OTHER.id)
        await sandboxes.swap(live, replace(live, state=State.ENDED, ended_at=NOW))
        with pytest.raises(Conflict, match="templates"):
            await access.remove_team(OTHER.id)
        assert await access.key_by_digest("d1") is not None
        await templates.delete("t9")
        assert await access.remove_team(OTHER.id) and not await access.remove_team(OTHER.id)
        assert await access.teams() == [TEAM] and [key.id for key in await access.keys()] == ["k2"]

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
