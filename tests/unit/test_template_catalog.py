"""Which builds keep their layers: those that a tag names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandlot.engine.builds.template_catalog import TemplateCatalog
from sandlot.engine.core.model import Build, BuildStatus, Content, Resources, Tag, Team, Template
from sandlot.engine.store import Database, SqlAccess, SqlBuilds, SqlSandboxes, SqlTags, SqlTemplates

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TEAM = Team(id="team_1", name="one", created_at=NOW)
TEMPLATE = Template(id="t1", team_id=TEAM.id, name="app", layers=(), build_id="", created_at=NOW, updated_at=NOW)


class World:
    """A catalog over a real database."""

    def __init__(self, database: Database) -> None:
        self.discarded: list[str] = []
        self.builds, self.tags = SqlBuilds(database), SqlTags(database)
        self.catalog = TemplateCatalog(
            templates=SqlTemplates(database),
            builds=self.builds,
            tags=self.tags,
            sandboxes=SqlSandboxes(database),
            clock=lambda: NOW,
            discard=self.discard,
        )

    async def discard(self, name: str) -> None:
        self.discarded.append(name)

    async def finish(self, name: str, *tags: str) -> Build:
        build = Build(
            id=name, template_id="t1", team_id=TEAM.id, status=BuildStatus.READY, tags=tags, resources=Resources(),
            created_at=NOW, updated_at=NOW, content=Content(layers=(f"layer-{name}",), checkpoint=f"tpl-{name}"),
        )  # fmt: skip
        await self.builds.add(build)
        await self.catalog.add_build(TEMPLATE, build)
        return build

    async def full(self) -> set[str]:
        return {build.id for build in await self.builds.query() if build.content and build.content.layers}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    database = Database.sqlite(tmp_path / "db")
    await database.migrate()
    await SqlAccess(database).add_team(TEAM)
    await SqlTemplates(database).put(TEMPLATE)
    yield World(database)
    await database.close()


async def test_a_build_whose_last_tag_has_moved_gives_its_layers_and_its_state_back(world: World) -> None:
    await world.finish("b1", "default", "v1")
    await world.finish("b2", "default")
    assert await world.full() == {"b1", "b2"} and not world.discarded
    await world.finish("b3", "default", "v1")
    assert await world.full() == {"b3"} and sorted(world.discarded) == ["tpl-b1", "tpl-b2"]


async def test_so_does_one_whose_last_tag_is_taken_away(world: World) -> None:
    await world.finish("b1", "v1")
    await world.finish("b2", "default")
    await world.catalog.unassign(TEAM.id, "app", ["v1"])
    assert await world.full() == {"b2"} and world.discarded == ["tpl-b1"]


async def test_what_was_left_because_a_server_was_killed_in_between_is_emptied_at_its_next_start(world: World) -> None:
    await world.finish("b1", "default")
    second = await world.finish("b2", "v2")
    await world.builds.add(replace(second, id="b3"))
    await world.tags.assign([Tag(template_id="t1", tag="default", build_id="b3", created_at=NOW)])  # and no more
    assert await world.full() == {"b1", "b2", "b3"}
    await world.catalog.tidy()
    assert await world.full() == {"b2", "b3"} and world.discarded == ["tpl-b1"]
