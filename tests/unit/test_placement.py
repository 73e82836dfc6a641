"""Which node a new machine goes to, and that nodes do not wait for each other."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.control import control_plane
from tests.fakes import FakeNode, SlowLookingNode

from sandlot.engine.control.placement import emptiest
from sandlot.engine.control.sandbox_request import NewSandbox
from sandlot.engine.core.errors import NoCapacity, Unavailable
from sandlot.engine.core.model import NodeStatus, State, Template

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TEMPLATE = Template(id="t1", team_id=None, name="base", layers=("l1",), build_id="b", created_at=NOW, updated_at=NOW)
A = NodeStatus(name="a", cpu_count=4, memory_mb=8192, machines=3, layers=frozenset({"l1"}))
B = replace(A, name="b", machines=1)


def test_the_node_with_the_most_memory_per_machine_is_taken() -> None:
    assert emptiest(TEMPLATE, [A, B]).name == "b"
    assert emptiest(TEMPLATE, [A, replace(B, memory_mb=2048)]).name == "a"


def test_a_node_that_has_the_layers_goes_before_one_that_has_room() -> None:
    assert emptiest(TEMPLATE, [A, replace(B, layers=frozenset())]).name == "a"


def test_a_node_that_has_the_checkpoint_goes_first() -> None:
    saved = replace(TEMPLATE, checkpoint="tpl1")
    assert emptiest(saved, [replace(A, checkpoints=frozenset({"tpl1"})), B]).name == "a"


def test_a_snapshot_goes_where_it_is_or_nowhere() -> None:
    assert emptiest(replace(TEMPLATE, node="a"), [A, B]).name == "a"
    with pytest.raises(Unavailable, match="node 'c'"):
        emptiest(replace(TEMPLATE, node="c"), [A, B])


def test_nodes_that_drain_or_are_not_healthy_get_nothing() -> None:
    assert emptiest(TEMPLATE, [replace(B, is_draining=True), A]).name == "a"
    with pytest.raises(NoCapacity):
        emptiest(TEMPLATE, [replace(A, is_healthy=False)])


async def test_reconciling_one_node_does_not_hold_up_creates_on_another(tmp_path: Path) -> None:
    slow, other = SlowLookingNode(), FakeNode("other")
    slow.is_draining = True  # new machines go to the other one
    async with control_plane(tmp_path, slow, more_nodes=[other]) as control:
        looking = asyncio.create_task(control.reconciler.once())
        await slow.entered.acquire()
        sandbox = await asyncio.wait_for(control.creation.create(control.team.id, NewSandbox(template="base")), 10)
        assert sandbox.state is State.RUNNING and sandbox.node == "other" and not looking.done()
        slow.go.set()
        await looking
