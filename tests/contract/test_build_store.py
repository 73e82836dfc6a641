"""What the stores of builds and tags do, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text
from tests.databases import KINDS, nothing_in
from tests.rows import a_row

from sandlot.engine.core.errors import Conflict
from sandlot.engine.core.model import (
    Build,
    BuildStatus,
    Content,
    LogEntry,
    Resources,
    Sandbox,
    State,
    Tag,
    Team,
    Template,
)
from sandlot.engine.store import Database, SqlAccess, SqlBuilds, SqlTags, SqlTemplates

NOW = datetime(2030, 5, 1, 12, 30, 15, 123456, tzinfo=UTC)
TEAM = Team(id="team_1", name="one", created_at=NOW)
CONTENT = Content(
    layers=("a", "b"), env={"A": "1"}, user="worker", workdir="/srv", start_cmd="run", checkpoint="tpl1", node="local"
)
TEMPLATE = Template(id="t1", team_id=TEAM.id, name="app", layers=(), build_id="", created_at=NOW, updated_at=NOW)


def a_build(number: int = 1, **changes: object) -> Build:
    build = Build(
        id=f"00000000-0000-0000-0000-00000000000{number}",
        template_id="t1",
        team_id=TEAM.id,
        status=BuildStatus.WAITING,
        tags=("default",),
        resources=Resources(cpu_count=3),
        created_at=NOW + timedelta(seconds=number),
        updated_at=NOW,
    )
    return replace(build, **changes)  # type: ignore[arg-type]


@pytest.fixture(params=KINDS)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with nothing_in(Database, request, tmp_path) as found:
        await found.migrate()
        await SqlAccess(found).add_team(TEAM)
        yield found


async def test_a_build_comes_back_as_it_was_written(database: Database) -> None:
    builds = SqlBuilds(database)
    await builds.add(a_build())
    assert await builds.get(a_build().id) == a_build()
    done = a_build(status=BuildStatus.READY, content=CONTENT, finished_at=NOW)
    written = await builds.swap(a_build(), done)
    assert written == replace(done, revision=1) == await builds.get(done.id)
    assert await builds.get("nothing") is None


async def test_an_id_is_taken_once(database: Database) -> None:
    builds = SqlBuilds(database)
    await builds.add(a_build())
    with pytest.raises(Conflict):
        await builds.add(a_build(status=BuildStatus.ERROR))
    assert await builds.get(a_build().id) == a_build()


async def test_of_two_who_change_the_same_version_one_wins(database: Database) -> None:
    builds = SqlBuilds(database)
    await builds.add(a_build())
    outcomes = await asyncio.gather(
        *(builds.swap(a_build(), a_build(problem=str(number))) for number in range(4)), return_exceptions=True
    )
    (winner,) = [each for each in outcomes if isinstance(each, Build)]
    assert sum(isinstance(each, Conflict) for each in outcomes) == 3
    assert await builds.get(a_build().id) == winner and winner.revision == 1


async def test_what_moved_on_or_is_gone_is_not_overwritten(database: Database) -> None:
    builds = SqlBuilds(database)
    await builds.add(a_build())
    await builds.swap(a_build(), a_build(status=BuildStatus.BUILDING))
    with pytest.raises(Conflict):
        await builds.swap(a_build(), a_build(status=BuildStatus.ERROR))
    with pytest.raises(Conflict):
        await builds.swap(a_build(2), a_build(2))
    with pytest.raises(ValueError):
        await builds.swap(a_build(1), a_build(2))


async def test_builds_of_a_database_from_before_revisions_can_be_changed(database: Database) -> None:
    builds = SqlBuilds(database)
    await builds.add(a_build())
    async with database.write("go back") as connection:
        for undone in (
            "ALTER TABLE builds DROP COLUMN revision",
            "DROP TABLE usage_samples",
            "DROP TABLE lifecycle_marks",
            "DROP TABLE secrets",
            "DROP TABLE egress_entries",
            "DROP TABLE egress_left_out",
            "ALTER TABLE sandboxes DROP COLUMN egress",
            "DROP INDEX sandboxes_source",
            "ALTER TABLE sandboxes DROP COLUMN source",
        ):
            await connection.execute(text(undone))
        await connection.execute(text("UPDATE alembic_version SET version_num = '0004'"))
    await database.migrate()
    assert await builds.get(a_build().id) == a_build()
    assert (await builds.swap(a_build(), a_build(status=BuildStatus.BUILDING))).revision == 1


async def test_builds_are_found_newest_first_by_template_and_status(database: Database) -> None:
    builds = SqlBuilds(database)
    for number, status in enumerate((BuildStatus.READY, BuildStatus.ERROR, BuildStatus.READY), 1):
        await builds.add(a_build(number, status=status))
    await builds.add(a_build(4, template_id="t2", status=BuildStatus.READY))
    found = await builds.query(template_id="t1", statuses=[BuildStatus.READY])
    assert [build.id[-1] for build in found] == ["3", "1"]
    assert len(await builds.query()) == 4


async def test_logs_are_read_in_pages_and_no_line_is_written_twice(database: Database) -> None:
    builds = SqlBuilds(database)
    await builds.add(a_build())
    lines = [LogEntry(at=NOW, message=f"line {n} é", level="warn", fields={"step": "1"}) for n in range(5)]
    await builds.log(a_build().id, 0, lines[:3])
    await builds.log(a_build().id, 3, lines[3:])
    await builds.log(a_build().id, 5, [])
    assert list(await builds.logs(a_build().id, offset=0, limit=100)) == lines
    assert list(await builds.logs(a_build().id, offset=2, limit=2)) == lines[2:4]
    assert list(await builds.logs(a_build().id, offset=5, limit=2)) == []
    with pytest.raises(Conflict):
        await builds.log(a_build().id, 4, lines[:1])


async def test_a_tag_means_one_build_and_can_be_moved(database: Database) -> None:
    builds, tags, templates = SqlBuilds(database), SqlTags(database), SqlTemplates(database)
    await templates.put(TEMPLATE)
    for number, workdir in ((1, "/one"), (2, "/two")):
        content = replace(CONTENT, workdir=workdir)
        await builds.add(a_build(number, status=BuildStatus.READY, content=content))
    first = Tag(template_id="t1", tag="v1", build_id=a_build(1).id, created_at=NOW)
    await tags.assign([first, replace(first, tag="v2")])
    await tags.assign([replace(first, tag="v2", build_id=a_build(2).id)])
    assert [(tag.tag, tag.build_id[-1]) for tag in await tags.list("t1")] == [("v1", "1"), ("v2", "2")]
    for ref, workdir in (("app:v1", "/one"), ("t1:v2", "/two"), ("one/app:v2", "/two"), ("team_1/app:v1", "/one")):
        found = await templates.resolve(TEAM.id, ref)
        assert found is not None and found.default_workdir == workdir and found.resources.cpu_count == 3
    for ref in ("app:v3", "other/app:v1", "app:"):
        found = await templates.resolve(TEAM.id, ref)
        assert found is None or not found.layers
    own = await templates.resolve(TEAM.id, "app:default")
    assert own == TEMPLATE
    assert await tags.remove("t1", ["v1", "missing"]) == 1
    assert await templates.resolve(TEAM.id, "app:v1") is None


async def test_a_template_is_forgotten_with_its_builds_logs_and_tags(database: Database) -> None:
    builds, tags = SqlBuilds(database), SqlTags(database)
    await builds.add(a_build(1))
    await builds.add(a_build(2, template_id="t2"))
    await builds.log(a_build(1).id, 0, [LogEntry(at=NOW, message="x")])
    await tags.assign([Tag(template_id="t1", tag="v1", build_id=a_build(1).id, created_at=NOW)])
    await builds.forget("t1")
    assert await builds.get(a_build(1).id) is None and await builds.get(a_build(2).id) is not None
    assert not await builds.logs(a_build(1).id, offset=0, limit=9) and not await tags.list("t1")


async def test_a_sandbox_finds_the_build_that_it_was_made_from(database: Database) -> None:
    builds, templates = SqlBuilds(database), SqlTemplates(database)
    await templates.put(TEMPLATE)
    await builds.add(a_build(1, status=BuildStatus.READY, content=replace(CONTENT, layers=(), user="another")))
    await builds.add(a_build(2, template_id="t2", content=CONTENT))
    for build_id, user in ((a_build(1).id, "another"), (a_build(2).id, "user"), ("gone", "user"), (None, "user")):
        found = await templates.of(a_sandbox(build_id))
        assert found is not None and found.default_user == user
    assert await templates.of(replace(a_sandbox(None), template_id="t3")) is None


def a_sandbox(build_id: str | None) -> Sandbox:
    return a_row(team_id="another team's", template_id="t1", state=State.PAUSED, build_id=build_id)
