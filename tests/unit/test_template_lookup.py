"""Which template a sandbox is made from: one that comes with the server is waited for while it is built."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.control import Control, control_plane
from tests.fakes import FakeNode

from sandlot.engine.api.errors import _engine_error
from sandlot.engine.api.sandboxes import SDK_PATIENCE_S, patience
from sandlot.engine.control.stock_templates import StockTemplate
from sandlot.engine.control.template_lookup import PATIENCE_S, TemplateLookup
from sandlot.engine.core.errors import NotFound, NotReadyYet


class SlowStock:
    """Knows one stock template, `tool`, also as `public-tool`, and is ready after so many looks."""

    def __init__(self, world: Control, looks: int, **state: Any) -> None:
        self.world, self.looks, self.state, self.waited = world, looks, state, list[float]()

    def name_of(self, ref: str) -> str | None:
        return "tool" if ref.partition(":")[0] in ("tool", "public-tool") else None

    def refusal(self, ref: str) -> str | None:
        return "E2B's template 'desktop' is not part of this" if ref == "desktop" else None

    async def wait(self, name: str, within_s: float) -> StockTemplate:
        self.waited.append(within_s)
        if len(self.waited) == self.looks:
            template = dataclasses.replace(self.world.template, id="t2", name="tool", layers=("l2",))
            await self.world.templates.put(template)
        return StockTemplate(name=name, **{"state": "building", **self.state})

    def begin(self, name: str) -> StockTemplate:
        raise AssertionError

    def all(self) -> Sequence[StockTemplate]:
        raise AssertionError

    def lines(self, name: str, after: int) -> tuple[Sequence[str], int]:
        raise AssertionError


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Control]:
    async with control_plane(tmp_path, FakeNode()) as world:
        yield world


async def find(world: Control, stock: SlowStock, ref: str, patience_s: float = 60) -> str:
    found = await TemplateLookup(world.templates, stock).find(world.team.id, ref, patience_s)
    return found.name


@pytest.mark.parametrize("ref", ["tool", "public-tool"])
async def test_a_template_that_is_being_built_is_waited_for(world: Control, ref: str) -> None:
    stock = SlowStock(world, looks=3)
    assert await find(world, stock, ref) == "tool"
    assert len(stock.waited) == 3
    assert await find(world, stock, ref) == "tool" and len(stock.waited) == 3, "it is there now"


async def test_when_the_time_is_over_the_caller_learns_when_to_come_back(world: Control) -> None:
    stock = SlowStock(world, looks=0, seconds=30, remaining_s=200)
    with pytest.raises(NotReadyYet, match=r"'tool' is being built .* begun 30 s ago, ready in about 3 min") as error:
        await find(world, stock, "tool", 0)
    answer = await _engine_error(None, error.value)  # type: ignore[arg-type]
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "120")
    soon = SlowStock(world, looks=0, seconds=30, remaining_s=0, problem="no network")
    with pytest.raises(NotReadyYet, match=r"the last attempt failed: no network.* ready soon") as error:
        await find(world, soon, "tool", 0)
    assert error.value.retry_after_s == 5


async def test_a_build_that_failed_is_told_at_once(world: Control) -> None:
    stock = SlowStock(world, looks=0, state="failed", problem="no network")
    with pytest.raises(NotReadyYet, match="could not be built: no network"):
        await find(world, stock, "tool")
    assert len(stock.waited) == 1


async def test_names_that_nobody_knows_are_not_found_and_public_ones_are_explained(world: Control) -> None:
    stock = SlowStock(world, looks=0)
    with pytest.raises(NotFound, match="'mine' not found"):
        await find(world, stock, "mine")
    with pytest.raises(NotFound, match="E2B's template 'desktop' is not part"):
        await find(world, stock, "desktop")
    assert stock.waited == []


async def test_a_template_of_the_team_comes_before_a_public_name(world: Control) -> None:
    own = dataclasses.replace(world.template, id="t3", name="public-tool", team_id=world.team.id)
    await world.templates.put(own)
    assert await find(world, SlowStock(world, looks=1), "public-tool") == "public-tool"
    await world.templates.put(dataclasses.replace(own, layers=()))
    with pytest.raises(NotFound, match="has no finished build"):
        await find(world, SlowStock(world, looks=1), "public-tool")


def test_callers_are_kept_waiting_no_longer_than_their_kind_waits() -> None:
    assert patience("e2b-python-sdk/2.63.0") == patience("e2b-js-sdk/2.0.1") == SDK_PATIENCE_S < 60
    for other in ("e2b-python-sdk/1.11.0", "e2b-js-sdk/1.5.0", "python-httpx/0.28", None):
        assert patience(other) == PATIENCE_S < 30
