"""Stock templates in the background of a server: each is built once, in the right order, and again when its recipe changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandlot.recipes import stock
from sandlot.recipes.build import Options
from sandlot.recipes.connection import Connection
from sandlot.recipes.recipe import RecipeFailed
from sandlot.recipes.stock import StockNotes
from sandlot.recipes.stock_templates import StockTemplates

SERVER = Connection(api_url="http://localhost", api_key="key", domain="localhost")


class SlowBuild:
    """Stands for the build through the SDK: holds every build until the test says go, then fails those in `problems`."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self.problems: dict[str, str] = {}

    async def __call__(self, connection: Connection, name: str, notes: StockNotes, options: Options) -> None:
        assert connection is SERVER
        options.output(f"[1] RUN {name}")
        self.begun.append(name)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        if name in self.problems:
            raise RecipeFailed(self.problems[name])
        notes.put(name, stock.digest(name))


class World:
    def __init__(self, tmp_path: Path) -> None:
        self.build, self.lines = SlowBuild(), list[str]()
        self.notes, self.recipes = StockNotes(tmp_path), tmp_path / "templates"
        self.listening = asyncio.Event()
        self.stock = StockTemplates(connection=self.connection, notes=self.notes, build=self.build)

    async def connection(self) -> Connection:
        await self.listening.wait()
        return SERVER

    def change(self, name: str) -> None:
        with (self.recipes / name / "Dockerfile").open("a") as file:
            file.write("RUN true\n")

    async def make(self, ref: str) -> bool:
        return await self.stock.make(ref, self.lines.append)


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(stock, "STOCK", tmp_path / "templates")
    for name, base in (("node", "e2bdev/base"), ("agent", "sandlot-template/node"), ("other", "e2bdev/base")):
        directory = tmp_path / "templates" / name
        directory.mkdir(parents=True)
        (directory / "Dockerfile").write_text(f"FROM {base}\n")
        (directory / "template.toml").write_text("")
    world = World(tmp_path)
    world.listening.set()
    yield world
    await world.stock.close()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_however_many_ask_a_template_is_built_once(world: World) -> None:
    makers = [asyncio.create_task(world.make(ref)) for ref in ("node", "node:v1", "node")]
    assert (await world.stock.wait("node", 0)).state == "building"
    await settle()
    assert world.build.begun == ["node"]
    world.build.go.set()
    assert await asyncio.gather(*makers) == [True, True, True]
    assert world.lines[-1] == "the stock template 'node' is ready"
    assert world.notes.get("node") == stock.digest("node")


async def test_what_is_no_stock_template_is_left_to_others(world: World) -> None:
    assert world.stock.name_of("mine") is None
    assert await world.make("mine:v2") is False
    assert world.build.begun == []


async def test_builds_begin_when_the_server_listens(world: World) -> None:
    world.listening.clear()
    maker = asyncio.create_task(world.make("node"))
    await settle()
    assert world.build.begun == []
    world.listening.set()
    world.build.go.set()
    assert await maker is True


async def test_a_failure_is_given_to_all_who_wait_and_the_next_who_asks_tries_again(world: World) -> None:
    world.build.problems["node"] = "no network"
    world.build.go.set()
    for outcome in await asyncio.gather(*(world.make("node") for _ in range(2)), return_exceptions=True):
        assert isinstance(outcome, RecipeFailed) and "could not be built: no network" in str(outcome)
    assert world.stock.progress("node").state == "failed" and world.stock.progress("node").problem == "no network"
    world.build.go.clear()
    again = await world.stock.wait("node", 0)
    assert (again.state, again.problem) == ("building", "no network")
    await settle()
    assert world.build.begun == ["node", "node"]


async def test_a_build_that_takes_too_long_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandlot.recipes.stock_templates.BUILD_TIMEOUT_S", 0)
    with pytest.raises(RecipeFailed, match="took longer"):
        await world.make("node")
    assert world.build.cancelled == ["node"] or not world.build.begun


async def test_templates_are_built_again_when_their_recipe_or_one_below_it_changes(world: World) -> None:
    for name in ("node", "agent"):
        world.notes.put(name, stock.digest(name))
    assert world.stock.renew() == []
    world.change("node")
    world.change("other")
    assert world.stock.renew() == ["agent", "node"], "those that were built here"
    await settle()
    assert world.build.begun == ["node"], "the one below comes first"
    world.build.go.set()
    await settle()
    assert world.build.begun == ["node", "agent"] and world.stock.renew() == []


async def test_a_template_is_not_renewed_upon_one_whose_build_failed(world: World) -> None:
    for name in ("node", "agent"):
        world.notes.put(name, stock.digest(name))
    world.change("node")
    world.build.problems["node"] = "no network"
    world.build.go.set()
    world.stock.renew()
    await settle()
    assert world.build.begun == ["node"] and world.notes.get("agent") != stock.digest("agent")


async def test_closing_cancels_builds_and_lets_none_begin(world: World) -> None:
    maker = asyncio.create_task(world.make("node"))
    await settle()
    await world.stock.close()
    assert world.build.cancelled == ["node"]
    with pytest.raises(asyncio.CancelledError):
        await maker
    assert world.stock.name_of("other") is None and await world.make("other") is False
    assert (await world.stock.wait("other", 5)).state == "failed"
    assert world.build.begun == ["node"]


async def test_what_was_never_built_here_is_prepared_and_followed(world: World) -> None:
    world.notes.put("other", stock.digest("other"))
    (world.recipes / "node" / "template.toml").write_text('also = ["js"]\nbuild_s = 100\n')
    assert world.stock.prepare(["js", "other", "no-such"]) == ["node"]
    await settle()
    building = world.stock.progress("node")
    assert building.state == "building" and building.doing == "[1] RUN node"
    assert building.remaining_s is not None and 0 < building.remaining_s <= 100
    assert world.stock.lines("node", 0) == (["[1] RUN node"], 1) and world.stock.lines("node", 1) == ([], 1)
    world.build.go.set()
    assert (await world.stock.wait("node", 5)).state == "ready" and world.build.begun == ["node"]
    assert [each.state for each in world.stock.all()] == ["absent", "ready", "ready"]


async def test_a_long_log_keeps_its_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandlot.recipes.stock_templates.MOST_LINES", 2)
    world.stock.begin("node")
    await settle()
    for number in range(3):
        world.stock._told("node", f"line {number}")
    assert world.stock.lines("node", 0) == (["line 1", "line 2"], 4)
    assert world.stock.lines("node", 3) == (["line 2"], 4)
