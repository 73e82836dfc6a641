"""How rows and machines are brought together again after a crash."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.control import control_plane
from tests.fakes import FakeNode, LosingNode, SlowLookingNode, SlowNode, UnstoppableNode
from tests.rows import a_row

from sandlot.engine.control.reconcile import Drift, Repairs, drift
from sandlot.engine.control.sandbox_request import NewSandbox
from sandlot.engine.core.errors import Unavailable
from sandlot.engine.core.model import Isolation, Machine, Sandbox, State

BASE = NewSandbox(template="base")
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def row(id: str, state: State) -> Sandbox:
    return a_row(id=id, state=state)


def machine(id: str) -> Machine:
    return Machine(sandbox_id=id, runtime="fake", isolation=Isolation.NONE, address="10.0.0.1")


class TestDrift:
    def test_nothing_is_no_drift(self) -> None:
        assert drift([], []) == Drift()

    def test_a_running_row_with_its_machine_is_sound(self) -> None:
        assert drift([row("a", State.RUNNING)], [machine("a")]) == Drift(sound=(row("a", State.RUNNING),))

    def test_a_running_row_without_a_machine_is_lost(self) -> None:
        assert drift([row("a", State.RUNNING)], []).lost == (row("a", State.RUNNING),)

    @pytest.mark.parametrize("rows", [[], [row("a", State.ENDED)]], ids=["no row", "ended row"])
    def test_a_machine_without_a_live_row_is_stray(self, rows: list[Sandbox]) -> None:
        assert drift(rows, [machine("a")]).stray == (machine("a"),)

    @pytest.mark.parametrize("state", [State.CREATING, State.STOPPING, State.PAUSING, State.RESUMING])
    def test_a_row_halfway_is_stuck_and_its_machine_is_not_stray(self, state: State) -> None:
        assert drift([row("a", state)], [machine("a")]) == Drift(stuck=(row("a", state),))

    def test_a_paused_row_needs_no_machine(self) -> None:
        assert drift([row("a", State.PAUSED)], []) == Drift()

    @pytest.mark.parametrize("state", list(State))
    def test_what_is_moving_is_left_alone(self, state: State) -> None:
        assert drift([row("a", state)], [], moving={"a"}) == Drift()
        assert drift([], [machine("a")], moving={"a"}) == Drift()


async def test_a_server_killed_and_started_again_has_its_sandboxes(tmp_path: Path) -> None:
    node = FakeNode()
    async with control_plane(tmp_path, node) as before:
        sandbox = await before.creation.create(before.team.id, BASE)
        heard_before: list[str] = []
        before.states.on_change(lambda changed: heard_before.append(changed.id))
    async with control_plane(tmp_path, node) as after:
        repairs = await after.reconciler.at_start()
        assert repairs == Repairs(adopted=(sandbox.id,))
        assert node.adopted == [sandbox.id]
        assert await after.lookup.get(after.team.id, sandbox.id) == sandbox
        assert after.deadlines.next() == sandbox.end_at
        await node.crash(sandbox.id)
        assert (await after.row(sandbox.id)).state is State.ENDED
        assert heard_before == []


async def test_deadlines_that_passed_while_the_server_was_down_are_kept_after_it_starts(tmp_path: Path) -> None:
    node = FakeNode()
    async with control_plane(tmp_path, node) as before:
        await before.creation.create(before.team.id, BASE)
        clock = before.clock
    clock.advance(301)
    async with control_plane(tmp_path, node, clock) as after:
        await after.reconciler.at_start()
        assert await after.deadlines.expire() == 1
        assert node.running == {}


async def test_what_a_crash_left_between_rows_and_host_is_repaired(tmp_path: Path) -> None:
    node = FakeNode()
    async with control_plane(tmp_path, node) as before:
        lost, half, ending, sound = [await before.creation.create(before.team.id, BASE) for _ in range(4)]
        del node.running[lost.id]
        # Moves that a server killed with -9 had begun: written past the lifecycle, as it would have left them.
        await before.sandboxes.swap(half, replace(half, state=State.CREATING, machine=None, idempotency_key="k"))
        await before.sandboxes.swap(ending, replace(ending, state=State.STOPPING, end_reason="killed"))
        node.running["istray"] = machine("istray")
        node.leftovers = {"iold", sound.id}
    async with control_plane(tmp_path, node) as after:
        repairs = await after.reconciler.at_start()
        assert set(node.running) == {sound.id}
        assert node.leftovers == {sound.id}
        assert repairs.lost == (lost.id,)
        assert repairs.stray == ("istray",)
        assert set(repairs.stuck) == {half.id, ending.id}
        assert repairs.adopted == (sound.id,)
        assert repairs.freed == ("directory of iold",)
        reasons = {row.id: row.end_reason for row in await after.sandboxes.query(states=[State.ENDED])}
        assert reasons == {
            lost.id: "lost: the machine is gone",
            half.id: "interrupted: the server stopped while the sandbox was creating",
            ending.id: "killed",
        }
        assert (await after.row(half.id)).idempotency_key is None, "the request can be repeated"
        assert await after.reconciler.once() == Repairs(), "and a second pass finds nothing"


async def test_a_start_in_flight_is_left_alone(tmp_path: Path) -> None:
    node = SlowNode()
    async with control_plane(tmp_path, node) as control:
        create = asyncio.create_task(control.creation.create(control.team.id, BASE))
        await node.entered.acquire()
        assert await control.reconciler.once() == Repairs()
        node.go.set()
        sandbox = await create
        assert await control.reconciler.once() == Repairs()
        assert set(node.running) == {sandbox.id}


async def test_a_start_that_comes_during_a_look_at_the_host_is_not_taken_for_a_stray(tmp_path: Path) -> None:
    node = SlowLookingNode()
    async with control_plane(tmp_path, node) as control:
        look = asyncio.create_task(control.reconciler.once())
        await node.entered.acquire()
        create = asyncio.create_task(control.creation.create(control.team.id, BASE))
        await asyncio.wait([create], timeout=0.2)
        assert node.started == [], "it waits until the look is over"
        node.go.set()
        assert await look == Repairs()
        sandbox = await create
        assert set(node.running) == {sandbox.id}


async def test_passes_beside_creates_and_kills_disturb_neither(tmp_path: Path) -> None:
    node = FakeNode()
    async with control_plane(tmp_path, node) as control:

        async def cycle() -> None:
            for _ in range(8):
                sandbox = await control.creation.create(control.team.id, BASE)
                assert sandbox.id in node.running
                await control.ending.kill(control.team.id, sandbox.id)

        async def passes() -> list[Repairs]:
            return [await control.reconciler.once() for _ in range(30)]

        _, _, _, repairs = await asyncio.gather(cycle(), cycle(), cycle(), passes())
        assert set(repairs) == {Repairs()}
        assert {row.end_reason for row in await control.sandboxes.query()} == {"killed"}


async def test_a_stop_that_failed_is_finished_by_a_later_pass(tmp_path: Path) -> None:
    node = UnstoppableNode()
    async with control_plane(tmp_path, node) as control:
        sandbox = await control.creation.create(control.team.id, BASE)
        with pytest.raises(Unavailable):
            await control.ending.kill(control.team.id, sandbox.id)
        assert await control.reconciler.once() == Repairs(), "still broken: reported, and tried again"
        node.mended = True
        assert (await control.reconciler.once()).stuck == (sandbox.id,)
        row = await control.row(sandbox.id)
        assert (row.state, row.end_reason) == (State.ENDED, "killed")


async def test_a_machine_that_cannot_be_taken_over_is_ended_with_the_reason(tmp_path: Path) -> None:
    node = LosingNode()
    async with control_plane(tmp_path, node) as before:
        sandbox = await before.creation.create(before.team.id, BASE)
    async with control_plane(tmp_path, node) as after:
        assert sandbox.id not in (await after.reconciler.at_start()).adopted
        row = await after.row(sandbox.id)
        assert row.state is State.ENDED
        assert "namespace is gone" in (row.end_reason or "")
        assert node.running == {}


async def test_the_loop_survives_a_host_that_is_broken_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ForgetfulNode(FakeNode):
        looks = 0

        async def list_machines(self) -> list[Machine]:
            self.looks += 1
            if self.looks == 1:
                await asyncio.Event().wait()
            raise Unavailable("the runtime does not answer") if self.looks == 2 else OSError("no such directory")

    monkeypatch.setattr("sandlot.engine.control.reconcile.LOOK_LIMIT_S", 2)
    async with control_plane(tmp_path, node := ForgetfulNode()) as control:
        naps = 0

        async def sleep(seconds: float) -> None:
            nonlocal naps
            naps += 1
            if naps == 4:
                raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            await control.reconciler.run(sleep=sleep)
        assert node.looks == 3
