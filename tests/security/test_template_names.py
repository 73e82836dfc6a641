"""Templates that another team publishes, under names that others use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.rows import NOW, a_row

from sandlot.engine.builds import Builder, BuildSettings, BuildTools
from sandlot.engine.builds.template_catalog import TemplateCatalog
from sandlot.engine.core.errors import Conflict, InvalidRequest
from sandlot.engine.core.model import Team, Template
from sandlot.engine.store import Database, SqlAccess, SqlBuilds, SqlSandboxes, SqlTags, SqlTemplates

FIRST, SQUATTER, VICTIM = (
    Team(id=f"team_{name}", name=name, created_at=NOW + timedelta(seconds=number))
    for number, name in enumerate(("first", "squatter", "victim"))
)
STOCK = "code-interpreter-v1"


def a_template(id: str, team: Team, name: str = STOCK) -> Template:
    return Template(
        id=id, team_id=team.id, name=name, layers=("l",), build_id="b", created_at=NOW, updated_at=NOW, public=True
    )


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database.sqlite(tmp_path / "db")
    await database.migrate()
    for team in (FIRST, SQUATTER, VICTIM):
        await SqlAccess(database).add_team(team)
    yield database
    await database.close()


def a_catalog(database: Database) -> TemplateCatalog:
    async def discard(_: str) -> None: ...

    return TemplateCatalog(
        templates=SqlTemplates(database),
        builds=SqlBuilds(database),
        tags=SqlTags(database),
        sandboxes=SqlSandboxes(database),
        clock=lambda: NOW,
        discard=discard,
    )


async def test_a_bare_name_never_means_a_strangers_template(database: Database) -> None:
    templates = SqlTemplates(database)
    await templates.put(a_template("t1", SQUATTER))
    for ref in (STOCK, f"{STOCK}:default", f"victim/{STOCK}", f"first/{STOCK}"):
        assert await templates.resolve(VICTIM.id, ref) is None, ref
        assert await templates.resolve(FIRST.id, ref) is None, ref
    for ref in (f"squatter/{STOCK}", "t1"):
        found = await templates.resolve(VICTIM.id, ref)
        assert found is not None and found.id == "t1"


async def test_what_the_first_team_publishes_is_everybodys_and_comes_after_a_teams_own(database: Database) -> None:
    templates = SqlTemplates(database)
    await templates.put(a_template("t1", SQUATTER))
    await templates.put(a_template("t2", FIRST))
    found = await templates.resolve(VICTIM.id, STOCK)
    assert found is not None and found.id == "t2"
    await templates.put(replace(a_template("t3", VICTIM), public=False))
    found = await templates.resolve(VICTIM.id, STOCK)
    assert found is not None and found.id == "t3"


async def test_names_that_come_with_the_server_are_built_by_the_first_team_only(database: Database) -> None:
    tools: Any = {"runner": None, "images": None, "uploads": None, "hold": lambda name: nullcontext()}
    builder = Builder(
        builds=SqlBuilds(database),
        catalog=a_catalog(database),
        tools=BuildTools(templates=SqlTemplates(database), **tools),
        clock=lambda: NOW,
        settings=BuildSettings(
            runtime="r", step_runtime="r", node="n", envd_version="1", reserved=frozenset({STOCK}), first_team=FIRST.id
        ),
    )
    for name in (STOCK, STOCK.upper(), f"{STOCK}:v2", f"squatter/{STOCK}"):
        with pytest.raises(Conflict, match="comes with the server"):
            await builder.request(SQUATTER.id, name)
    await builder.request(SQUATTER.id, "mine")
    await builder.request(FIRST.id, STOCK)


async def test_an_error_does_not_name_another_teams_sandbox(database: Database) -> None:
    await SqlTemplates(database).put(a_template("t1", SQUATTER, "shared"))
    sandbox = a_row(id="isecret", team_id=VICTIM.id, template_id="t1")
    await SqlSandboxes(database).add(sandbox)
    with pytest.raises(InvalidRequest, match="another team") as error:
        await a_catalog(database).delete(SQUATTER.id, "shared")
    assert "isecret" not in str(error.value)
