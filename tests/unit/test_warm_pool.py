"""How the pool decides what stands ready, and that nobody gets what somebody else was given."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.control import control_plane
from tests.fakes import FakeNode

from sandlot.engine.control.sandbox_request import Limits, NewSandbox
from sandlot.engine.core.errors import MachineFailed, NoCapacity
from sandlot.engine.core.model import NetworkPolicy, NewMachine, Resources, State, Template
from sandlot.engine.node.warm_pool import DEMAND_S, KEEP_S, QUIET_S, RETRY_S, Plan, Pool

MB = 1 << 20
NOW = datetime(2030, 1, 1, tzinfo=UTC)
TEMPLATE = Template(id="t1", team_id=None, name="base", layers=("l1",), build_id="b1", created_at=NOW, updated_at=NOW)
WISH = NewMachine(
    sandbox_id="", runtime="fake", template=TEMPLATE, resources=Resources(), network=NetworkPolicy(), envd_token="t"
)


class Host:
    """Machines that are entries in a dict, on a host whose clock and memory the test moves."""

    def __init__(self, size: int = 2, memory_bytes: int = 1000 * MB) -> None:
        self.now = 1000.0
        self.pressed = False
        self.broken = False
        self.failure: Exception = MachineFailed("broken on purpose")
        self.machines: dict[str, NewMachine] = {}
        self.removed: list[str] = []
        ids = itertools.count()
        self.pool = Pool(
            prepare=self.prepare,
            discard=self.discard,
            plan=Plan(size=size, memory_bytes=memory_bytes, make_id=lambda: f"i{next(ids)}"),
            pressed=lambda: self.pressed,
            now=lambda: self.now,
        )

    async def prepare(self, new: NewMachine) -> int:
        for _ in range(20):
            await asyncio.sleep(0)
        if self.broken:
            raise self.failure
        self.machines[new.sandbox_id] = new
        return 10 * MB

    async def discard(self, sandbox_id: str) -> None:
        await asyncio.sleep(0)
        self.machines.pop(sandbox_id, None)
        self.removed.append(sandbox_id)

    async def settle(self) -> None:
        self.now += QUIET_S
        for _ in range(200):
            if not await self.pool.step():
                return
        raise AssertionError("the pool never comes to rest")

    def ready(self) -> int:
        return sum(self.pool.numbers()[0].values())

    async def asked(self, times: int = 1, wish: NewMachine = WISH) -> Sequence[str | None]:
        given = [self.pool.take(wish) for _ in range(times)]
        await self.settle()
        return given


async def test_what_was_asked_for_once_stands_ready_the_next_time() -> None:
    host = Host()
    assert await host.asked() == [None]
    (given,) = await host.asked()
    assert given in host.machines and host.pool.numbers()[1:] == (1, 1)


async def test_two_callers_never_get_the_same_machine() -> None:
    host = Host(size=3)
    await host.asked()
    given = [host.pool.take(WISH) for _ in range(5)]
    assert len({each for each in given if each}) == 3 and given[3:] == [None, None]


async def test_each_machine_in_store_believes_in_a_token_of_its_own() -> None:
    host = Host()
    await host.asked()
    assert len({new.envd_token for new in host.machines.values()}) == 2 and "t" not in {
        new.envd_token for new in host.machines.values()
    }


async def test_a_machine_in_store_has_nothing_of_who_asked_first() -> None:
    host = Host()
    await host.asked(wish=replace(WISH, env_vars={"SECRET": "1"}, network=NetworkPolicy(allow_internet=False)))
    assert all(not new.env_vars and new.network == NetworkPolicy() for new in host.machines.values())


async def test_without_a_size_nothing_stands_ready() -> None:
    host = Host(size=0)
    assert await host.asked(3) == [None] * 3 and not host.machines


@pytest.mark.parametrize(
    "other",
    [
        replace(WISH, runtime="other"),
        replace(WISH, resources=Resources(memory_mb=2048)),
        replace(WISH, template=replace(TEMPLATE, build_id="b2")),
        replace(WISH, template=replace(TEMPLATE, layers=("l1", "l2"))),
        replace(WISH, checkpoint="state"),
    ],
    ids=["runtime", "resources", "build", "layers", "state"],
)
async def test_only_what_is_alike_stands_in(other: NewMachine) -> None:
    host = Host()
    await host.asked()
    assert host.pool.take(other) is None


async def test_counters_of_a_template_do_not_make_it_another() -> None:
    host = Host()
    await host.asked()
    counted = replace(
        WISH, template=replace(TEMPLATE, spawn_count=7, last_spawned_at=NOW, updated_at=datetime.now(UTC))
    )
    assert host.pool.take(counted) is not None


async def test_a_burst_is_expected_again_and_forgotten_in_time() -> None:
    host = Host(size=2)
    await host.asked(20)
    assert host.ready() == 20
    host.now += DEMAND_S + 11
    await host.settle()
    assert host.ready() == 2
    host.now += KEEP_S
    await host.settle()
    assert host.ready() == 0 and not host.machines and not host.pool.ids()


async def test_memory_bounds_what_stands_ready() -> None:
    host = Host(memory_bytes=55 * MB)
    host.machines.clear()
    await host.asked(1, replace(WISH, runtime="measure"))  # a first machine is taken to be larger than it turns out
    assert host.ready() == 0
    host = Host(memory_bytes=95 * MB)
    await host.asked(30)
    assert host.ready() == 9


async def test_what_was_asked_for_last_goes_before_what_was_asked_for_long_ago() -> None:
    host = Host(memory_bytes=75 * MB)
    await host.asked(6)
    host.now += 60
    await host.asked(1, replace(WISH, runtime="other"))
    assert host.pool.numbers()[0]["other"] >= 1


async def test_a_host_short_of_memory_gets_back_what_is_in_store() -> None:
    host = Host()
    await host.asked(4)
    host.pressed = True
    await host.settle()
    assert not host.machines and host.ready() == 0
    assert host.pool.take(WISH) is None
    host.pressed = False
    await host.settle()
    assert host.ready() >= 2


async def test_a_template_that_changed_has_nothing_in_store() -> None:
    host = Host()
    await host.asked()
    await host.pool.drain("t1")
    assert not host.machines and not host.pool.ids()


async def test_a_machine_that_is_made_while_its_template_goes_goes_too() -> None:
    host = Host()
    host.pool.take(WISH)
    host.now += QUIET_S
    step = asyncio.create_task(host.pool.step())
    for _ in range(10):
        await asyncio.sleep(0)
    assert host.pool.ids()
    await host.pool.drain("t1")
    await step
    await host.settle()
    assert not host.machines and not host.pool.ids()


async def test_a_promise_given_back_is_somebody_elses() -> None:
    host = Host()
    await host.asked()
    first = host.pool.take(WISH)
    assert first is not None
    host.pool.put_back(first)
    assert host.pool.take(WISH) == first


async def test_a_promised_machine_is_the_pools_until_it_is_released() -> None:
    host = Host()
    await host.asked()
    given = host.pool.take(WISH)
    assert given is not None and given in host.pool.ids()
    assert host.pool.promised(given) == host.machines[given].envd_token and host.pool.promised("i99") is None
    assert host.pool.lost(given) is True and given not in host.removed, "whoever it was promised to finds out"
    assert host.pool.release(given) == host.machines[given].envd_token
    assert given not in host.pool.ids() and host.pool.release(given) is None


async def test_a_machine_that_dies_in_store_is_replaced() -> None:
    host = Host()
    await host.asked()
    dead = next(iter(host.machines))
    assert host.pool.lost(dead) is True
    assert host.pool.lost("somebody's") is False
    await host.settle()
    assert dead in host.removed and host.ready() == 2 and dead not in host.pool.ids()


async def test_what_cannot_be_made_is_tried_again_later_not_at_once() -> None:
    host = Host()
    host.broken = True
    await host.asked()
    host.broken = False
    await host.settle()
    assert not host.machines and not host.pool.ids()
    host.now += RETRY_S
    await host.settle()
    assert host.ready() == 2


async def test_nothing_is_made_ready_beside_a_start() -> None:
    host = Host()
    with host.pool.yielding():
        host.pool.take(WISH)
        host.now += QUIET_S
        step = asyncio.create_task(host.pool.step())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not host.pool.ids()
    host.now += 1
    assert await step is True and len(host.machines) == 1


async def test_snapshots_and_what_a_start_command_would_miss_are_started_afresh() -> None:
    host = Host()
    assert await host.asked(2, replace(WISH, template=replace(TEMPLATE, source="i1"))) == [None, None]
    assert not host.machines
    service = replace(WISH, template=replace(TEMPLATE, start_cmd="serve"))
    await host.asked(1, service)
    assert host.pool.take(replace(service, env_vars={"PORT": "1"})) is None
    assert host.pool.take(replace(service, network=NetworkPolicy(allow_internet=False))) is None
    assert host.pool.take(service) is not None


async def test_a_pool_that_closes_leaves_nothing() -> None:
    host = Host()
    await host.asked(5)
    await host.pool.close()
    assert not host.machines and host.pool.take(WISH) is None


# With the lifecycle


async def test_a_create_takes_the_id_of_the_machine_that_stood_ready(tmp_path: Path) -> None:
    node = FakeNode()
    node.ready = ["iready"]
    async with control_plane(tmp_path, node) as control:
        sandbox = await control.lifecycle.create(control.team.id, NewSandbox(template="base"))
        assert sandbox.id == "iready" and sandbox.state is State.RUNNING and not node.promised


async def test_a_create_that_is_refused_gives_the_machine_back(tmp_path: Path) -> None:
    node = FakeNode()
    async with control_plane(tmp_path, node, limits=Limits(max_sandboxes=1, max_timeout_s=3600)) as control:
        await control.lifecycle.create(control.team.id, NewSandbox(template="base"))
        node.ready = ["iready"]
        with pytest.raises(NoCapacity):
            await control.lifecycle.create(control.team.id, NewSandbox(template="base"))
        assert node.ready == ["iready"] and not node.promised


async def test_a_repeated_create_gives_the_machine_back(tmp_path: Path) -> None:
    node = FakeNode()
    async with control_plane(tmp_path, node) as control:
        wish = NewSandbox(template="base", idempotency_key="k")
        first = await control.lifecycle.create(control.team.id, wish)
        node.ready = ["iready"]
        assert await control.lifecycle.create(control.team.id, wish) == first
        assert node.ready == ["iready"]


async def test_forks_never_begin_with_a_machine_of_the_pool(tmp_path: Path) -> None:
    node = FakeNode()
    async with control_plane(tmp_path, node) as control:
        sandbox = await control.lifecycle.create(control.team.id, NewSandbox(template="base"))
        node.ready = ["iready"]
        (child,) = await control.suspension.fork(control.team.id, sandbox.id, count=1, timeout_s=60)
        assert getattr(child, "id", None) not in (None, "iready") and node.ready == ["iready"]


async def test_nothing_is_made_ready_in_the_moment_after_somebody_asked() -> None:
    host = Host()
    host.pool.take(WISH)
    step = asyncio.create_task(host.pool.step())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not host.pool.ids(), "the one that was asked for is about to start"
    host.now += QUIET_S
    await asyncio.wait_for(step, 30)
    assert host.ready() == 1


async def test_a_full_disk_is_tried_again_later_and_ends_nothing() -> None:
    host = Host()
    host.broken, host.failure = True, OSError(28, "No space left on device")
    await host.asked()
    assert not host.machines and not host.pool.ids()
    host.broken = False
    host.now += RETRY_S
    await host.settle()
    assert host.ready() == 2
