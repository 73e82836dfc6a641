"""Pauses, resumes and captures that something else happens to: a kill, a failure, a crowd, the end of the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.control import Control, control_plane
from tests.fakes import FakeNode, HalfPausingNode, RestlessNode

from sandlot.engine.control.deadlines import RETRY
from sandlot.engine.control.sandbox_request import NewSandbox
from sandlot.engine.core.errors import Conflict, MachineFailed, NotFound
from sandlot.engine.core.model import OnTimeout, PauseMode, Sandbox, State

BASE = NewSandbox(template="base")
Act = Callable[[Control, Sandbox], Coroutine[Any, Any, object]]


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[tuple[Control, RestlessNode]]:
    node = RestlessNode()
    async with control_plane(tmp_path, node) as control:
        yield control, node
        node.go.set()


def pause(control: Control, sandbox: Sandbox) -> Coroutine[Any, Any, object]:
    return control.suspension.pause(control.team.id, sandbox.id)


def connect(control: Control, sandbox: Sandbox) -> Coroutine[Any, Any, object]:
    return control.suspension.connect(control.team.id, sandbox.id, 100)


def snapshot(control: Control, sandbox: Sandbox) -> Coroutine[Any, Any, object]:
    return control.snapshots.take(control.team.id, sandbox.id, name=None)


def fork(control: Control, sandbox: Sandbox) -> Coroutine[Any, Any, object]:
    return control.snapshots.fork(control.team.id, sandbox.id, count=2, timeout_s=100)


async def create(control: Control, new: NewSandbox = BASE) -> Sandbox:
    return await control.creation.create(control.team.id, new)


async def paused(control: Control, node: RestlessNode, new: NewSandbox = BASE) -> Sandbox:
    sandbox = await create(control, new)
    node.go.set()
    resting = await control.suspension.pause(control.team.id, sandbox.id)
    node.go.clear()
    await node.entered.acquire()
    return resting


async def begun(node: RestlessNode, act: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
    task = asyncio.create_task(act)
    await node.entered.acquire()
    return task


async def until_state(control: Control, sandbox_id: str, state: State) -> None:
    for _ in range(2000):
        if (await control.row(sandbox_id)).state is state:
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"it did not become {state} within 10 seconds")


@pytest.mark.parametrize("act", [pause, snapshot, fork])
async def test_killed_in_the_middle_nothing_of_it_is_left(slow: tuple[Control, RestlessNode], act: Act) -> None:
    control, node = slow
    sandbox = await create(control)
    acting = await begun(node, act(control, sandbox))
    kill = asyncio.create_task(control.ending.kill(control.team.id, sandbox.id))
    await until_state(control, sandbox.id, State.STOPPING)
    assert not kill.done()
    node.go.set()
    await kill
    await asyncio.gather(acting, return_exceptions=True)
    assert (await control.row(sandbox.id)).state is State.ENDED
    assert sandbox.id not in node.running and sandbox.id not in node.saved


async def test_killed_while_resumed_is_a_conflict_and_nothing_is_left(slow: tuple[Control, RestlessNode]) -> None:
    control, node = slow
    resting = await paused(control, node)
    resuming = await begun(node, connect(control, resting))
    kill = asyncio.create_task(control.ending.kill(control.team.id, resting.id))
    await until_state(control, resting.id, State.STOPPING)
    node.go.set()
    await kill
    with pytest.raises(Conflict, match="killed while it was resumed"):
        await resuming
    assert node.running == {} and node.saved == {}


async def test_a_second_pause_waits_for_the_first_and_is_a_conflict(slow: tuple[Control, RestlessNode]) -> None:
    control, node = slow
    sandbox = await create(control)
    first = await begun(node, pause(control, sandbox))
    others = [asyncio.create_task(pause(control, sandbox)) for _ in range(3)]
    await asyncio.sleep(0.01)
    node.go.set()
    await first
    outcomes = await asyncio.gather(*others, return_exceptions=True)
    assert all(isinstance(one, Conflict) for one in outcomes) and node.pauses == 1


async def test_a_crowd_that_connects_resumes_once(slow: tuple[Control, RestlessNode]) -> None:
    control, node = slow
    resting = await paused(control, node)
    connects = [
        asyncio.create_task(control.suspension.connect(control.team.id, resting.id, 10 * n)) for n in range(1, 21)
    ]
    await node.entered.acquire()
    node.go.set()
    outcomes = await asyncio.gather(*connects)
    assert sum(resumed for _, resumed in outcomes) == 1 and len(node.resumed) == 1
    ends = (await control.row(resting.id)).end_at
    assert (ends - control.clock.now).total_seconds() == 200, "the one who asked for the longest gets it"


async def test_connecting_while_it_is_paused_waits_and_resumes(slow: tuple[Control, RestlessNode]) -> None:
    control, node = slow
    sandbox = await create(control)
    pausing = await begun(node, pause(control, sandbox))
    connecting = asyncio.create_task(control.suspension.connect(control.team.id, sandbox.id, 10))
    await asyncio.sleep(0.01)
    assert not connecting.done()
    node.go.set()
    await pausing
    assert (await connecting)[1] is True


async def test_forks_and_snapshots_of_one_sandbox_wait_for_each_other(slow: tuple[Control, RestlessNode]) -> None:
    control, node = slow
    sandbox = await create(control)
    node.go.set()
    acts = [act(control, sandbox) for act in (snapshot, fork, snapshot, fork)]
    await asyncio.gather(*acts)
    assert (await control.row(sandbox.id)).state is State.RUNNING
    assert len(node.running) == 5 and len(node.saved) == 2


@pytest.mark.parametrize("act", [pause, snapshot, fork])
async def test_a_failure_leaves_it_running_with_its_machine_and_no_state(
    slow: tuple[Control, RestlessNode], act: Act
) -> None:
    control, node = slow
    sandbox = await create(control)
    node.error = MachineFailed("the disk is full")
    node.go.set()
    with pytest.raises(MachineFailed, match="disk is full"):
        await act(control, sandbox)
    row = await control.row(sandbox.id)
    assert row.state is State.RUNNING and row.machine == sandbox.machine
    assert node.saved == {} and set(node.running) == {sandbox.id}


async def test_a_resume_that_fails_leaves_it_paused_and_can_be_tried_again(slow: tuple[Control, RestlessNode]) -> None:
    control, node = slow
    resting = await paused(control, node)
    node.error = MachineFailed("no more slots")
    node.go.set()
    with pytest.raises(MachineFailed, match="no more slots"):
        await connect(control, resting)
    assert (await control.row(resting.id)).state is State.PAUSED
    node.error = None
    assert (await control.suspension.connect(control.team.id, resting.id, 10))[1]


async def test_a_pause_that_fails_after_all_was_done_is_a_pause(tmp_path: Path) -> None:
    async with control_plane(tmp_path, HalfPausingNode()) as control:
        sandbox = await create(control)
        with pytest.raises(MachineFailed):
            await pause(control, sandbox)
        assert (await control.row(sandbox.id)).state is State.PAUSED
        assert (await control.suspension.connect(control.team.id, sandbox.id, 10))[1]


@pytest.mark.parametrize("act", [pause, snapshot])
async def test_a_machine_that_dies_meanwhile_ends_its_sandbox(slow: tuple[Control, RestlessNode], act: Act) -> None:
    control, node = slow
    sandbox = await create(control)
    acting = await begun(node, act(control, sandbox))
    await node.crash(sandbox.id)
    node.go.set()
    with pytest.raises(NotFound):
        await acting
    await until_state(control, sandbox.id, State.ENDED)
    assert node.saved == {}


async def test_a_machine_that_dies_right_after_a_resume_ends_its_sandbox(slow: tuple[Control, RestlessNode]) -> None:
    control, node = slow
    resting = await paused(control, node)
    node.go.set()
    await connect(control, resting)
    await node.crash(resting.id)
    assert (await control.row(resting.id)).state is State.ENDED


async def test_a_pause_at_the_deadline_that_fails_is_tried_again_later(slow: tuple[Control, RestlessNode]) -> None:
    control, node = slow
    sandbox = await create(control, replace(BASE, on_timeout=OnTimeout.PAUSE))
    node.error = MachineFailed("the disk is full")
    node.go.set()
    control.clock.advance(301)
    assert await control.deadlines.expire() == 1
    row = await control.row(sandbox.id)
    assert row.state is State.RUNNING and row.end_at == control.clock.now + RETRY
    assert await control.deadlines.expire() == 0
    node.error = None
    control.clock.advance(RETRY.total_seconds() + 1)
    await control.deadlines.expire()
    assert (await control.row(sandbox.id)).state is State.PAUSED


async def test_a_deadline_during_a_snapshot_comes_after_it(slow: tuple[Control, RestlessNode]) -> None:
    control, node = slow
    sandbox = await create(control, replace(BASE, on_timeout=OnTimeout.PAUSE))
    taking = await begun(node, snapshot(control, sandbox))
    control.clock.advance(301)
    assert await control.deadlines.expire() == 0
    node.go.set()
    await taking
    await control.deadlines.expire()
    assert (await control.row(sandbox.id)).state is State.PAUSED


@pytest.mark.parametrize("act", [pause, snapshot, connect])
async def test_a_caller_that_goes_away_does_not_stop_it_halfway(slow: tuple[Control, RestlessNode], act: Act) -> None:
    control, node = slow
    sandbox = await (paused(control, node) if act is connect else create(control))
    acting = await begun(node, act(control, sandbox))
    acting.cancel()
    await asyncio.gather(acting, return_exceptions=True)
    node.go.set()
    await control.inflight.settle(sandbox.id)
    expected = State.PAUSED if act is pause else State.RUNNING
    assert (await control.row(sandbox.id)).state is expected


@pytest.mark.parametrize("act", [pause, connect])
async def test_a_server_that_is_told_to_stop_finishes_it(tmp_path: Path, act: Act) -> None:
    node = RestlessNode()
    async with control_plane(tmp_path, node) as control:
        sandbox = await (paused(control, node) if act is connect else create(control))
        acting = await begun(node, act(control, sandbox))
        asyncio.get_running_loop().call_later(0.05, node.go.set)
    await acting
    async with control_plane(tmp_path, node) as after:
        expected = State.PAUSED if act is pause else State.RUNNING
        assert (await after.row(sandbox.id)).state is expected


class TestAfterACrash:
    """Rows as a server that was killed with -9 left them, and a host that still has what it had."""

    @pytest.mark.parametrize("state", [State.CAPTURING, State.PAUSING])
    async def test_a_machine_without_a_whole_state_goes_on(self, tmp_path: Path, state: State) -> None:
        node = FakeNode()
        async with control_plane(tmp_path, node) as before:
            sandbox = await create(before)
            await before.sandboxes.swap(sandbox, replace(sandbox, state=state))
            node.frozen.add(sandbox.id)
        async with control_plane(tmp_path, node) as after:
            assert (await after.reconciler.at_start()).stuck == (sandbox.id,)
            row = await after.row(sandbox.id)
            assert row.state is State.RUNNING and row.machine == sandbox.machine
            assert node.frozen == set() and node.adopted == [sandbox.id]

    @pytest.mark.parametrize("alive", [True, False])
    @pytest.mark.parametrize("state", [State.PAUSING, State.RESUMING])
    async def test_a_whole_state_is_a_pause_whatever_is_left_of_the_machine(
        self, tmp_path: Path, state: State, alive: bool
    ) -> None:
        node = FakeNode()
        async with control_plane(tmp_path, node) as before:
            sandbox = await create(before)
            await node.capture(sandbox.id, sandbox.id, memory=False)
            if not alive:
                del node.running[sandbox.id]
            await before.sandboxes.swap(sandbox, replace(sandbox, state=state))
        async with control_plane(tmp_path, node) as after:
            await after.reconciler.at_start()
            row = await after.row(sandbox.id)
            assert (row.state, row.pause_mode) == (State.PAUSED, PauseMode.FILESYSTEM)
            assert node.running == {} and set(node.saved) == {sandbox.id}
            assert (await after.suspension.connect(after.team.id, sandbox.id, 10))[1]

    @pytest.mark.parametrize("state", [State.CAPTURING, State.PAUSING, State.RESUMING])
    async def test_what_left_nothing_is_ended(self, tmp_path: Path, state: State) -> None:
        node = FakeNode()
        async with control_plane(tmp_path, node) as before:
            sandbox = await create(before)
            node.running.clear()
            await before.sandboxes.swap(sandbox, replace(sandbox, state=state))
        async with control_plane(tmp_path, node) as after:
            await after.reconciler.at_start()
            row = await after.row(sandbox.id)
            assert row.state is State.ENDED and "interrupted" in (row.end_reason or "")

    async def test_a_resume_that_was_done_but_not_written_down_goes_on_with_its_new_machine_and_time_to_live(
        self, tmp_path: Path
    ) -> None:
        node = FakeNode()
        async with control_plane(tmp_path, node) as before:
            sandbox = await create(before)
            moved = node.running[sandbox.id] = replace(node.running[sandbox.id], address="10.0.0.99")
            await before.sandboxes.swap(sandbox, replace(sandbox, state=State.RESUMING))
            before.clock.advance(10**6)
            clock = before.clock
        async with control_plane(tmp_path, node, clock) as after:
            await after.reconciler.at_start()
            row = await after.row(sandbox.id)
            assert row.state is State.RUNNING and row.machine == moved
            assert await after.deadlines.expire() == 0, "it was wanted awake"

    async def test_states_of_forks_and_snapshots_that_never_got_a_row_are_removed(self, tmp_path: Path) -> None:
        node = FakeNode()
        async with control_plane(tmp_path, node) as before:
            sandbox = await create(before)
            for name in ("frkx", "snpx"):
                await node.capture(sandbox.id, name, memory=True)
        async with control_plane(tmp_path, node) as after:
            await after.reconciler.at_start()
            assert node.saved == {} and (await after.row(sandbox.id)).state is State.RUNNING
