"""Builds in a race: each has one starter and one end, whoever else writes at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sandlot.engine.builds import Builder, BuildLimits, BuildSettings, BuildTools
from sandlot.engine.builds.build_states import MOVES, BuildStates, failed
from sandlot.engine.builds.template_catalog import TemplateCatalog
from sandlot.engine.core.errors import Conflict, StepFailed, WrongState
from sandlot.engine.core.model import Build, BuildStatus, Content, Image, LayerResult, Recipe, Team, Template
from sandlot.engine.store import Database, SqlAccess, SqlBuilds, SqlSandboxes, SqlTags, SqlTemplates

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TEAM = Team(id="team_1", name="one", created_at=NOW)
RECIPE = Recipe(from_image="image")


class FakeRunner:
    """Builds without a host: every image is one layer and needs no preparation."""

    def cached_step(self, key: str) -> LayerResult | None:
        return LayerResult(layer=None, home="/home/user")

    def cache_step(self, key: str, result: LayerResult) -> None: ...


class SlowImages:
    """Holds every build until the test says go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.asked = 0

    async def find(self, ref: str, login: Any, output: Any) -> Image:
        self.asked += 1
        await self.go.wait()
        if ref == "broken":
            raise StepFailed("there is no such image")
        template = ref.removeprefix("template/") if ref.startswith("template/") else None
        return Image(description=ref, template=template, layers=() if template else (f"layer-{ref}",))


class World:
    """A builder over a real database."""

    def __init__(self, database: Database) -> None:
        self.builds, self.templates, self.images = SqlBuilds(database), SqlTemplates(database), SlowImages()
        self.discarded: list[str] = []
        self.catalog = TemplateCatalog(
            templates=self.templates,
            builds=self.builds,
            tags=SqlTags(database),
            sandboxes=SqlSandboxes(database),
            clock=lambda: NOW,
            discard=self.discard,
        )
        self.builder = self.a_builder(self.builds)

    def a_builder(self, builds: SqlBuilds, at_once: int = 2) -> Builder:
        tools: Any = {
            "runner": FakeRunner(),
            "images": self.images,
            "uploads": None,
            "hold": lambda name: nullcontext(),
        }
        return Builder(
            builds=builds,
            catalog=self.catalog,
            tools=BuildTools(templates=self.templates, **tools),
            clock=lambda: NOW,
            settings=BuildSettings(
                runtime="r", step_runtime="r", node="n", envd_version="1", limits=BuildLimits(at_once=at_once)
            ),
        )

    async def discard(self, name: str) -> None:
        self.discarded.append(name)

    async def requested(self, name: str = "app") -> tuple[Template, Build]:
        return await self.builder.request(TEAM.id, name)

    async def start(self, template: Template, build: Build, recipe: Recipe = RECIPE) -> None:
        await self.builder.start(TEAM.id, template.id, build.id, recipe)

    async def now(self, build: Build) -> Build:
        found = await self.builds.get(build.id)
        assert found is not None
        return found

    async def ended(self, build: Build) -> Build:
        for _ in range(1000):
            found = await self.now(build)
            if found.status in (BuildStatus.READY, BuildStatus.ERROR):
                return found
            await asyncio.sleep(0.01)
        raise AssertionError(f"{build.id} does not end")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    database = Database.sqlite(tmp_path / "db")
    await database.migrate()
    await SqlAccess(database).add_team(TEAM)
    world = World(database)
    yield world
    await world.builder.close()
    await database.close()


async def test_of_two_who_start_the_same_build_one_wins_and_the_other_gets_a_conflict(world: World) -> None:
    template, build = await world.requested()
    outcomes = await asyncio.gather(*(world.start(template, build) for _ in range(2)), return_exceptions=True)
    (refusal,) = [each for each in outcomes if each is not None]
    assert isinstance(refusal, Conflict) and "already been started" in str(refusal)
    assert world.images.asked == 1
    world.images.go.set()
    assert (await world.ended(build)).status is BuildStatus.READY
    with pytest.raises(Conflict, match="already been started"):
        await world.start(template, build)


async def test_a_build_that_a_restart_interrupted_and_that_was_finished_meanwhile_is_not_overwritten(
    world: World,
) -> None:
    template, build = await world.requested()
    await world.start(template, build)

    class FinishedMeanwhile(SqlBuilds):
        async def query(self, **wanted: Any) -> Sequence[Build]:
            found = await super().query(**wanted)
            world.images.go.set()
            await world.ended(build)
            return found

    await world.a_builder(FinishedMeanwhile(world.builds._database)).recover()
    found = await world.now(build)
    assert (found.status, found.problem) == (BuildStatus.READY, None) and found.content is not None


async def test_a_build_that_was_ended_by_somebody_else_does_not_come_back(world: World) -> None:
    template, build = await world.requested()
    await world.start(template, build)
    await world.builder.recover()
    world.images.go.set()
    await asyncio.sleep(0.1)
    found = await world.now(build)
    assert found.status is BuildStatus.ERROR and "stopped while" in (found.problem or "")
    tagged = await world.templates.resolve(TEAM.id, template.id)
    assert tagged is not None and tagged.layers == (), "and gives the template nothing"


async def test_a_build_that_loses_its_tags_before_it_is_ready_is_ready_and_empty(world: World) -> None:
    template, build = await world.requested()

    async def overtaken(layers: Sequence[str]) -> None:
        other = replace(await world.now(build), id="other", content=Content(layers=("newer",)))
        await world.builds.add(other)
        await world.catalog.add_build(template, other)

    world.builder.on_ready(overtaken)
    world.images.go.set()
    await world.start(template, build)
    found = await world.ended(build)
    assert found.status is BuildStatus.READY
    assert found.content is not None and found.content.layers == (), "another build has its tags"


async def test_builds_that_run_when_the_server_stops_are_marked_so(world: World) -> None:
    template, build = await world.requested()
    await world.start(template, build)
    await world.builder.close()
    found = await world.now(build)
    assert found.status is BuildStatus.ERROR and "the server stopped" in (found.problem or "")


async def test_a_failure_names_its_step_and_is_in_the_log(world: World) -> None:
    template, build = await world.requested()
    world.images.go.set()
    await world.start(template, build, Recipe(from_image="broken"))
    found = await world.ended(build)
    assert (found.status, found.problem_step, found.problem) == (BuildStatus.ERROR, "base", "there is no such image")
    lines = await world.builder.logs(found, offset=0, limit=100)
    assert [(line.level, line.message) for line in lines][-1] == ("error", "there is no such image")


@pytest.mark.parametrize("known", [True, False])
async def test_a_missing_base_is_made_first_if_somebody_knows_how(world: World, known: bool) -> None:
    async def make(ref: str, output: Callable[[str], None]) -> bool:
        output(f"making {ref}")
        if known:
            now = {"created_at": NOW, "updated_at": NOW}
            template = Template(id="node", team_id=None, name="node", layers=("n",), build_id="", **now)  # type: ignore[arg-type]
            await world.templates.put(template)
        return known

    world.builder = world.a_builder(world.builds, at_once=1)
    world.builder.when_missing(make)
    world.images.go.set()
    template, build = await world.requested()
    await world.start(template, build, Recipe(from_image="template/node"))
    found = await world.ended(build)
    assert found.status is (BuildStatus.READY if known else BuildStatus.ERROR)
    assert "not found" in (found.problem or "not found")
    assert "making node" in [line.message for line in await world.builder.logs(found, offset=0, limit=100)]


async def test_only_moves_of_the_table_are_written(world: World) -> None:
    _, build = await world.requested()
    states = BuildStates(world.builds)
    for status in set(BuildStatus) - MOVES[build.status] - {build.status}:
        with pytest.raises(WrongState):
            await states.change(build.id, lambda old, to=status: replace(old, status=to))  # type: ignore[misc]
    assert await states.change(build.id, lambda old: failed(old, "no", None, NOW)) == build, "it never ran"
