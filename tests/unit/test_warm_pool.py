"""How the warm pool decides what is kept warm, and that no machine is leased twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest
from tests.control import control_plane
from tests.fakes import FakeNode
from tests.fakes_machines import MB, FakeFactory

from sandlot.engine.control.sandbox_request import NewSandbox, SandboxLimits
from sandlot.engine.core.errors import NoCapacity
from sandlot.engine.core.model import NetworkPolicy, NewMachine, Resources, Template
from sandlot.engine.node.boot_snapshots import BootSnapshots
from sandlot.engine.node.machines import MachineFactory
from sandlot.engine.node.warm_pool import DEMAND_S, KEEP_S, QUIET_S, RETRY_S, PoolLimits, WarmPool

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TEMPLATE = Template(id="t1", team_id=None, name="base", layers=("l1",), build_id="b1", created_at=NOW, updated_at=NOW)
NEW = NewMachine(
    sandbox_id="", runtime="fake", template=TEMPLATE, resources=Resources(), network=NetworkPolicy(), envd_token="t"
)


class Host(FakeFactory):
    """A host whose clock and memory the test moves."""

    def __init__(self, size: int = 2, memory_bytes: int = 1000 * MB) -> None:
        super().__init__()
        self.now = 1000.0
        self.pressed = False
        self.pool = WarmPool(
            machines=cast(MachineFactory, self),
            starts=cast(BootSnapshots, self),
            limits=PoolLimits(size=size, memory_bytes=memory_bytes),
            is_pressed=lambda: self.pressed,
            now=lambda: self.now,
        )

    async def settle(self) -> None:
        self.now += QUIET_S
        for _ in range(200):
            if not await self.pool.step():
                return
        raise AssertionError("the pool never comes to rest")

    def ready(self) -> int:
        return sum(self.pool.numbers()[0].values())

    async def take(self, new: NewMachine = NEW) -> str | None:
        live = await self.pool.lease(new)
        return live.instance.machine_id if live else None

    async def asked(self, times: int = 1, new: NewMachine = NEW) -> Sequence[str | None]:
        given = [await self.take(new) for _ in range(times)]
        await self.settle()
        return given


async def test_what_was_asked_for_once_is_warm_the_next_time() -> None:
    host = Host()
    assert await host.asked() == [None]
    (given,) = await host.asked()
    assert given in host.machines and host.pool.numbers()[1:] == (1, 1)


async def test_two_callers_never_get_the_same_machine() -> None:
    host = Host(size=3)
    await host.asked()
    given = [await host.take() for _ in range(5)]
    assert len({each for each in given if each}) == 3 and given[3:] == [None, None]


async def test_each_machine_in_the_pool_believes_in_a_token_of_its_own() -> None:
    host = Host()
    await host.asked()
    assert len({new.envd_token for new in host.machines.values()}) == 2 and "t" not in {
        new.envd_token for new in host.machines.values()
    }


async def test_a_machine_in_the_pool_has_nothing_of_who_asked_first() -> None:
    host = Host()
    await host.asked(new=replace(NEW, env_vars={"SECRET": "1"}, network=NetworkPolicy(allow_internet=False)))
    assert all(not new.env_vars and new.network == NetworkPolicy() for new in host.machines.values())


async def test_without_a_size_nothing_is_warm() -> None:
    host = Host(size=0)
    assert await host.asked(3) == [None] * 3 and not host.machines


@pytest.mark.parametrize(
    "other",
    [
        replace(NEW, runtime="other"),
        replace(NEW, resources=Resources(memory_mb=2048)),
        replace(NEW, template=replace(TEMPLATE, build_id="b2")),
        replace(NEW, template=replace(TEMPLATE, layers=("l1", "l2"))),
        replace(NEW, checkpoint="state"),
    ],
    ids=["runtime", "resources", "build", "layers", "state"],
)
async def test_only_what_is_alike_stands_in(other: NewMachine) -> None:
    host = Host()
    await host.asked()
    assert await host.take(other) is None


async def test_counters_of_a_template_do_not_make_it_another() -> None:
    host = Host()
    await host.asked()
    counted = replace(NEW, template=replace(TEMPLATE, spawn_count=7, last_spawned_at=NOW, updated_at=datetime.now(UTC)))
    assert await host.take(counted) is not None


async def test_a_burst_is_expected_again_and_forgotten_in_time() -> None:
    host = Host(size=2)
    await host.asked(20)
    assert host.ready() == 20
    host.now += DEMAND_S + 11
    await host.settle()
    assert host.ready() == 2
    host.now += KEEP_S
    await host.settle()
    assert host.ready() == 0 and not host.machines


async def test_memory_bounds_what_is_warm() -> None:
    host = Host(memory_bytes=55 * MB)
    host.machines.clear()
    await host.asked(1, replace(NEW, runtime="measure"))  # a first machine is taken to be larger than it turns out
    assert host.ready() == 0
    for memory_bytes, fit in ((90 * MB, 9), (90 * MB - 1, 8), (95 * MB, 9)):  # of 10 MB each: what fits exactly fits
        host = Host(memory_bytes=memory_bytes)
        await host.asked(30)
        assert host.ready() == fit


async def test_memory_bounds_all_kinds_together_and_nobody_makes_way_for_what_was_asked_for_earlier() -> None:
    host = Host(memory_bytes=75 * MB)
    await host.asked(6)
    host.now += 60
    await host.asked(6, replace(NEW, runtime="other"))
    numbers = host.pool.numbers()[0]
    assert sum(numbers.values()) == 7 == len(host.machines)
    assert numbers["other"] == 1 + 7 - 6  # one in the place of another's, once, and one in the room that was left


async def test_what_was_asked_for_last_goes_before_what_was_asked_for_long_ago() -> None:
    host = Host(memory_bytes=75 * MB)
    await host.asked(6)
    host.now += 60
    await host.asked(1, replace(NEW, runtime="other"))
    assert host.pool.numbers()[0]["other"] >= 1


async def test_a_host_short_of_memory_gets_back_what_is_in_the_pool() -> None:
    host = Host()
    await host.asked(4)
    host.pressed = True
    await host.settle()
    assert not host.machines and host.ready() == 0
    assert await host.take(NEW) is None
    host.pressed = False
    await host.settle()
    assert host.ready() >= 2


async def test_a_template_that_changed_has_nothing_in_the_pool() -> None:
    host = Host()
    await host.asked()
    await host.pool.drain("t1")
    assert not host.machines


async def test_a_machine_that_is_made_while_its_template_goes_goes_too() -> None:
    host = Host()
    await host.take(NEW)
    host.now += QUIET_S
    step = asyncio.create_task(host.pool.step())
    for _ in range(10):
        await asyncio.sleep(0)
    await host.pool.drain("t1")
    await step
    await host.settle()
    assert not host.machines


async def test_a_leased_machine_is_no_longer_the_pools() -> None:
    host = Host()
    await host.asked()
    given = await host.take()
    assert given is not None
    await host.pool.close()
    assert given not in host.removed and host.ready() == 0


async def test_a_machine_that_cannot_be_leased_gives_way_to_the_next() -> None:
    host = Host()
    await host.asked()
    host.unleasable = {next(iter(host.machines))}
    given = await host.take()
    assert given is not None and given not in host.unleasable


async def test_a_machine_that_dies_in_the_pool_is_replaced() -> None:
    host = Host()
    await host.asked()
    dead = next(iter(host.machines))
    host.die(dead)
    await host.settle()
    assert dead in host.removed and host.ready() == 2


async def test_a_machine_that_died_unseen_is_never_leased() -> None:
    host = Host()
    await host.asked()
    dead, alive = host.machines
    host.die(dead)
    assert await host.take() == alive
    await host.settle()
    assert dead in host.removed


async def test_what_cannot_be_made_is_tried_again_later_not_at_once() -> None:
    host = Host()
    host.broken = True
    await host.asked()
    host.broken = False
    await host.settle()
    assert not host.machines
    host.now += RETRY_S
    await host.settle()
    assert host.ready() == 2


async def test_nothing_is_started_ahead_beside_a_start() -> None:
    host = Host()
    with host.pool.yielding():
        await host.take(NEW)
        host.now += QUIET_S
        step = asyncio.create_task(host.pool.step())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not host.machines
    host.now += 1
    assert await step is True and len(host.machines) == 1


async def test_snapshots_and_what_a_start_command_would_miss_are_started_afresh() -> None:
    host = Host()
    assert await host.asked(2, replace(NEW, template=replace(TEMPLATE, source="i1"))) == [None, None]
    assert not host.machines
    service = replace(NEW, template=replace(TEMPLATE, start_cmd="serve", env={"DISPLAY": ":0"}))
    await host.asked(2, service)
    assert await host.take(replace(service, env_vars={"PORT": "1"})) is None
    assert await host.take(replace(service, network=NetworkPolicy(allow_internet=False))) is None
    assert await host.take(replace(service, env_vars={"DISPLAY": ":1"})) is None
    assert await host.take(replace(service, env_vars={"DISPLAY": ":0"})) is not None, "the start command had it, too"
    assert await host.take(service) is not None


async def test_a_pool_that_closes_leaves_nothing() -> None:
    host = Host()
    await host.asked(5)
    await host.pool.close()
    assert not host.machines and await host.take(NEW) is None


# With the control plane


async def test_a_create_that_is_refused_asks_no_node(tmp_path: Path) -> None:
    node = FakeNode()
    async with control_plane(tmp_path, node, limits=SandboxLimits(max_sandboxes=1, max_timeout_s=3600)) as control:
        await control.creation.create(control.team.id, NewSandbox(template="base"))
        with pytest.raises(NoCapacity):
            await control.creation.create(control.team.id, NewSandbox(template="base"))
        assert len(node.started) == 1


async def test_a_repeated_create_asks_no_node(tmp_path: Path) -> None:
    node = FakeNode()
    async with control_plane(tmp_path, node) as control:
        new = NewSandbox(template="base", idempotency_key="k")
        first = await control.creation.create(control.team.id, new)
        assert await control.creation.create(control.team.id, new) == first
        assert len(node.started) == 1


async def test_forks_are_asked_for_as_snapshots_which_are_never_warm(tmp_path: Path) -> None:
    node, host = FakeNode(), Host()
    async with control_plane(tmp_path, node) as control:
        sandbox = await control.creation.create(control.team.id, NewSandbox(template="base"))
        await control.snapshots.fork(control.team.id, sandbox.id, count=1, timeout_s=60)
        assert await host.asked(2, node.started[-1]) == [None, None] and not host.machines


async def test_nothing_is_started_ahead_in_the_moment_after_somebody_asked() -> None:
    host = Host()
    await host.take(NEW)
    step = asyncio.create_task(host.pool.step())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not host.machines, "the one that was asked for is about to start"
    host.now += QUIET_S
    await asyncio.wait_for(step, 30)
    assert host.ready() == 1


async def test_a_full_disk_is_tried_again_later_and_ends_nothing() -> None:
    host = Host()
    host.broken, host.failure = True, OSError(28, "No space left on device")
    await host.asked()
    assert not host.machines
    host.broken = False
    host.now += RETRY_S
    await host.settle()
    assert host.ready() == 2
