"""What happens to sandboxes when two things happen to them at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.control import Control, control_plane
from tests.fakes import FakeNode, LingeringNode, ShortLivedNode, SlowNode, UnstoppableNode

from sandlot.engine.control.sandbox_request import NewSandbox, SandboxLimits
from sandlot.engine.core.errors import Conflict, MachineFailed, NotFound, Unavailable
from sandlot.engine.core.model import NetworkPolicy, Sandbox, State

BASE = NewSandbox(template="base")
KEYED = replace(BASE, idempotency_key="k-1")


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[tuple[Control, SlowNode]]:
    node = SlowNode()
    async with control_plane(tmp_path, node) as control:
        yield control, node


def creating(control: Control, new: NewSandbox = BASE) -> asyncio.Task[Sandbox]:
    return asyncio.create_task(control.creation.create(control.team.id, new))


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(2000):
        if await condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come true within 10 seconds")


async def the_row(control: Control) -> Sandbox:
    (row,) = await control.sandboxes.query()
    return row


async def test_the_row_is_there_before_the_machine(slow: tuple[Control, SlowNode]) -> None:
    control, node = slow
    create = creating(control)
    await node.entered.acquire()
    assert (await the_row(control)).state is State.CREATING
    assert node.running == {}
    node.go.set()
    assert (await create).state is State.RUNNING


async def test_the_time_to_live_counts_from_when_it_runs(slow: tuple[Control, SlowNode]) -> None:
    control, node = slow
    create = creating(control)
    await node.entered.acquire()
    control.clock.advance(50)
    node.go.set()
    sandbox = await create
    assert (sandbox.started_at, (sandbox.end_at - sandbox.started_at).total_seconds()) == (control.clock.now, 300)


async def test_killed_while_starting_does_not_leak_the_machine(slow: tuple[Control, SlowNode]) -> None:
    control, node = slow
    create = creating(control)
    await node.entered.acquire()
    row = await the_row(control)
    kill = asyncio.create_task(control.ending.kill(control.team.id, row.id))

    async def is_stopping() -> bool:
        return (await the_row(control)).state is State.STOPPING

    await until(is_stopping)
    assert not kill.done(), "a kill is done when nothing is left"
    node.go.set()
    await kill
    with pytest.raises(Conflict, match="killed while it was starting"):
        await create
    assert node.started, "the start did go through"
    assert node.running == {}
    row = await the_row(control)
    assert (row.state, row.end_reason) == (State.ENDED, "killed")


async def test_a_caller_that_goes_away_while_it_starts_leaves_nothing(slow: tuple[Control, SlowNode]) -> None:
    control, node = slow
    create = creating(control)
    await node.entered.acquire()
    create.cancel()
    with pytest.raises(asyncio.CancelledError):
        await create
    node.go.set()

    async def is_ended() -> bool:
        return (await the_row(control)).state is State.ENDED

    await until(is_ended)
    assert node.started
    assert node.running == {}


async def test_a_caller_that_goes_away_at_any_moment_leaves_nothing_half_made(tmp_path: Path) -> None:
    async with control_plane(tmp_path, FakeNode()) as control:
        for moment in range(60):
            create = creating(control)
            await asyncio.wait([create], timeout=moment * 0.0004)
            create.cancel()
            await asyncio.wait([create])
            if not create.cancelled():
                await control.ending.kill(control.team.id, create.result().id)

        async def is_quiet() -> bool:
            return not control.inflight.ids() and set(await control.all_states()) <= {State.ENDED}

        await until(is_quiet)
        assert control.node.running == {}


async def test_a_caller_with_a_key_that_goes_away_finds_its_sandbox_again(slow: tuple[Control, SlowNode]) -> None:
    control, node = slow
    create = creating(control, KEYED)
    await node.entered.acquire()
    create.cancel()
    await asyncio.wait([create])
    again = creating(control, KEYED)
    node.go.set()
    assert (await again).state is State.RUNNING
    assert len(node.started) == 1


async def test_two_requests_with_one_key_at_once_make_one_machine(slow: tuple[Control, SlowNode]) -> None:
    control, node = slow
    creates = [creating(control, KEYED) for _ in range(5)]
    await node.entered.acquire()
    late = creating(control, KEYED)
    node.go.set()
    sandboxes = await asyncio.gather(*creates, late)
    assert len({sandbox.id for sandbox in sandboxes}) == 1
    assert {sandbox.state for sandbox in sandboxes} == {State.RUNNING}
    assert len(node.started) == len(await control.sandboxes.query()) == 1


async def test_connect_and_set_timeout_wait_for_a_start(slow: tuple[Control, SlowNode]) -> None:
    control, node = slow
    create = creating(control)
    await node.entered.acquire()
    row = await the_row(control)
    connect = asyncio.create_task(control.suspension.connect(control.team.id, row.id, 1000))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not connect.done()
    node.go.set()
    await create
    sandbox, _ = await connect
    assert (sandbox.end_at - control.clock.now).total_seconds() == 1000


async def test_a_machine_that_ends_while_it_starts_does_not_stay_as_running(tmp_path: Path) -> None:
    async with control_plane(tmp_path, ShortLivedNode()) as control:
        sandbox = await control.creation.create(control.team.id, BASE)

        async def is_ended() -> bool:
            return (await control.row(sandbox.id)).state is State.ENDED

        await until(is_ended)
        assert (await control.row(sandbox.id)).end_reason == "exited"


async def test_many_kills_at_once_stop_the_machine_once(tmp_path: Path) -> None:
    async with control_plane(tmp_path, FakeNode()) as control:
        sandbox = await control.creation.create(control.team.id, BASE)
        kills = (control.ending.kill(control.team.id, sandbox.id) for _ in range(10))
        results = await asyncio.gather(*kills, return_exceptions=True)
        assert None in results
        assert all(result is None or isinstance(result, NotFound) for result in results)
        assert control.node.stopped == [sandbox.id]


async def test_a_kill_whose_caller_goes_away_is_still_finished(tmp_path: Path) -> None:
    node = LingeringNode()
    async with control_plane(tmp_path, node) as control:
        sandbox = await control.creation.create(control.team.id, BASE)
        kill = asyncio.create_task(control.ending.kill(control.team.id, sandbox.id))
        await node.entered.acquire()
        kill.cancel()
        await asyncio.wait([kill])
        node.go.set()

        async def is_ended() -> bool:
            return (await control.row(sandbox.id)).state is State.ENDED

        await until(is_ended)
        assert node.running == {}


async def test_a_kill_whose_caller_goes_away_at_any_moment_is_finished_or_never_begun(tmp_path: Path) -> None:
    async with control_plane(tmp_path, FakeNode(), limits=SandboxLimits(max_sandboxes=100)) as control:
        for moment in range(30):
            sandbox = await control.creation.create(control.team.id, BASE)
            kill = asyncio.create_task(control.ending.kill(control.team.id, sandbox.id))
            await asyncio.wait([kill], timeout=moment * 0.0005)
            kill.cancel()
            await asyncio.wait([kill])
        await control.plane.close()
        rows = await control.sandboxes.query()
        assert {row.state for row in rows} <= {State.RUNNING, State.ENDED}
        assert set(control.node.running) == {row.id for row in rows if row.state is State.RUNNING}


async def test_what_was_seen_on_its_way_out_is_not_ended_twice(tmp_path: Path) -> None:
    node = LingeringNode()
    async with control_plane(tmp_path, node) as control:
        sandbox = await control.creation.create(control.team.id, BASE)
        kill = asyncio.create_task(control.ending.kill(control.team.id, sandbox.id))
        await node.entered.acquire()
        seen = await control.row(sandbox.id)
        node.go.set()
        await kill
        assert seen.state is State.STOPPING
        assert await control.ending.end(seen, "interrupted") is False
        assert (await control.row(sandbox.id)).end_reason == "killed"


async def test_a_deadline_put_off_at_the_last_moment_wins_over_the_sweeper(tmp_path: Path) -> None:
    async with control_plane(tmp_path, FakeNode()) as control:
        sandbox = await control.creation.create(control.team.id, BASE)
        control.clock.advance(301)
        (seen,) = await control.sandboxes.expired(control.clock.now)
        await control.changes.set_timeout(control.team.id, sandbox.id, 100)
        assert await control.ending.end(seen, "timeout") is False
        assert (await control.row(sandbox.id)).state is State.RUNNING


async def test_changes_at_once_are_all_made(tmp_path: Path) -> None:
    async with control_plane(tmp_path, FakeNode()) as control:
        sandbox = await control.creation.create(control.team.id, BASE)
        await asyncio.gather(
            *(control.changes.refresh(control.team.id, sandbox.id, 1000 + n) for n in range(5)),
            control.changes.set_network(control.team.id, sandbox.id, NetworkPolicy(allow_internet=False)),
        )
        row = await control.row(sandbox.id)
        assert (row.end_at - control.clock.now).total_seconds() == 1004
        assert row.network.allow_internet is False


async def test_a_stop_that_fails_is_told_and_can_be_tried_again(tmp_path: Path) -> None:
    node = UnstoppableNode()
    async with control_plane(tmp_path, node) as control:
        sandbox = await control.creation.create(control.team.id, BASE)
        with pytest.raises(Unavailable):
            await control.ending.kill(control.team.id, sandbox.id)
        assert (await control.row(sandbox.id)).state is State.STOPPING
        node.mended = True
        await control.ending.kill(control.team.id, sandbox.id)
        assert (await control.row(sandbox.id)).state is State.ENDED
        assert node.running == {}


async def test_a_stop_that_hangs_holds_up_neither_its_caller_nor_other_deadlines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandlot.engine.control.deadlines.EXPIRE_WAIT_S", 0.05)
    node = LingeringNode()
    async with control_plane(tmp_path, node) as control:
        first = await control.creation.create(control.team.id, replace(BASE, timeout_s=10))
        second = await control.creation.create(control.team.id, replace(BASE, timeout_s=20))
        control.clock.advance(10)
        assert await control.deadlines.expire() == 1
        control.clock.advance(10)
        assert await control.deadlines.expire() == 1
        assert [(await control.row(id)).state for id in (first.id, second.id)] == [State.STOPPING] * 2
        node.go.set()
        await control.plane.close()
        assert await control.all_states() == [State.ENDED] * 2
        monkeypatch.setattr("sandlot.engine.control.end.STOP_LIMIT_S", 0.05)
        third = await control.creation.create(control.team.id, BASE)
        node.go.clear()
        with pytest.raises(MachineFailed, match="did not stop within"):
            await control.ending.kill(control.team.id, third.id)
        node.go.set()
        assert (await control.reconciler.once()).stuck == (third.id,)


async def test_a_server_that_stops_gives_up_starts_and_keeps_what_runs(tmp_path: Path) -> None:
    node = SlowNode()
    async with control_plane(tmp_path, node) as control:
        node.go.set()
        running = await control.creation.create(control.team.id, BASE)
        await node.entered.acquire()
        node.go.clear()
        create = creating(control)
        await node.entered.acquire()
        await control.plane.close()
        with pytest.raises(Unavailable, match="stopping"):
            await create
        assert await control.all_states() == [State.ENDED, State.RUNNING]
        assert set(node.running) == {running.id}
