"""Pauses, resumes, snapshots and forks on a real store: what they do, what they refuse, what they leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.control import Control, control_plane
from tests.fakes import BrokenNode, FakeNode

from sandlot.engine.control.sandbox_request import NewSandbox, SandboxLimits
from sandlot.engine.core.errors import Conflict, InvalidRequest, MachineFailed, NoCapacity, NotFound, StateUnusable
from sandlot.engine.core.model import NetworkPolicy, OnTimeout, PauseMode, Sandbox, State, Template

BASE = NewSandbox(template="base")
PAUSES = replace(BASE, on_timeout=OnTimeout.PAUSE)


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[Control]:
    async with control_plane(tmp_path, FakeNode()) as made:
        yield made


async def create(control: Control, new: NewSandbox = BASE) -> Sandbox:
    return await control.creation.create(control.team.id, new)


async def paused(control: Control, new: NewSandbox = BASE, *, memory: bool = True) -> Sandbox:
    sandbox = await create(control, new)
    return await control.suspension.pause(control.team.id, sandbox.id, memory=memory)


class TestPause:
    async def test_a_paused_sandbox_has_no_machine_but_its_state(self, control: Control) -> None:
        sandbox = await create(control)
        resting = await control.suspension.pause(control.team.id, sandbox.id)
        assert (resting.state, resting.pause_mode) == (State.PAUSED, PauseMode.FULL)
        assert control.node.running == {} and set(control.node.saved) == {sandbox.id}

    async def test_files_alone_are_kept_if_asked_for(self, control: Control) -> None:
        resting = await paused(control, memory=False)
        assert resting.pause_mode is PauseMode.FILESYSTEM
        assert control.node.saved[resting.id].mode is PauseMode.FILESYSTEM

    async def test_pausing_twice_is_a_conflict(self, control: Control) -> None:
        resting = await paused(control)
        with pytest.raises(Conflict, match="already paused"):
            await control.suspension.pause(control.team.id, resting.id)

    async def test_what_is_unknown_or_of_another_team_is_not_found(self, control: Control) -> None:
        sandbox = await create(control)
        for team, sandbox_id in (("team_other", sandbox.id), (control.team.id, "inope")):
            with pytest.raises(NotFound):
                await control.suspension.pause(team, sandbox_id)
            with pytest.raises(NotFound):
                await control.suspension.connect(team, sandbox_id, 10)
            with pytest.raises(NotFound):
                await control.snapshots.take(team, sandbox_id, name=None)
            with pytest.raises(NotFound):
                await control.snapshots.fork(team, sandbox_id, count=1, timeout_s=10)

    async def test_a_paused_sandbox_is_listed_and_takes_no_place_among_the_running(self, tmp_path: Path) -> None:
        async with control_plane(tmp_path, FakeNode(), limits=SandboxLimits(max_sandboxes=1)) as control:
            resting = await paused(control)
            other = await create(control)
            listed = await control.lookup.list(control.team.id)
            assert {row.id for row in listed.sandboxes} == {resting.id, other.id}
            with pytest.raises(NoCapacity):
                await control.suspension.connect(control.team.id, resting.id, 10)
            assert (await control.row(resting.id)).state is State.PAUSED
            await control.ending.kill(control.team.id, other.id)
            assert (await control.suspension.connect(control.team.id, resting.id, 10))[0].state is State.RUNNING

    async def test_a_paused_sandbox_has_no_deadline(self, control: Control) -> None:
        resting = await paused(control)
        control.clock.advance(10**7)
        assert await control.deadlines.expire() == 0
        assert (await control.row(resting.id)).state is State.PAUSED

    async def test_killing_a_paused_sandbox_removes_its_state(self, control: Control) -> None:
        resting = await paused(control)
        await control.ending.kill(control.team.id, resting.id)
        assert control.node.saved == {}
        with pytest.raises(NotFound):
            await control.suspension.connect(control.team.id, resting.id, 10)

    async def test_a_paused_sandbox_takes_no_new_timeout_and_no_new_network(self, control: Control) -> None:
        resting = await paused(control)
        with pytest.raises(Conflict, match="paused"):
            await control.changes.set_timeout(control.team.id, resting.id, 10)
        with pytest.raises(Conflict, match="paused"):
            await control.changes.set_network(control.team.id, resting.id, NetworkPolicy())
        with pytest.raises(Conflict, match="paused"):
            await control.snapshots.take(control.team.id, resting.id, name=None)
        with pytest.raises(Conflict, match="paused"):
            await control.snapshots.fork(control.team.id, resting.id, count=1, timeout_s=10)


class TestResume:
    async def test_connecting_resumes_with_the_same_identity_and_a_new_deadline(self, control: Control) -> None:
        sandbox = await create(control)
        await control.suspension.pause(control.team.id, sandbox.id)
        control.clock.advance(1000)
        running, resumed = await control.suspension.connect(control.team.id, sandbox.id, 50)
        assert resumed and running.state is State.RUNNING and running.pause_mode is None
        assert (running.id, running.envd_token, running.metadata) == (sandbox.id, sandbox.envd_token, sandbox.metadata)
        assert running.end_at == control.clock.now + timedelta(seconds=50)
        assert control.node.resumed[0].memory and control.node.saved == {}, "the state is older than the machine now"

    async def test_connecting_to_a_running_one_never_brings_its_end_nearer(self, control: Control) -> None:
        sandbox = await create(control)
        running, resumed = await control.suspension.connect(control.team.id, sandbox.id, 1)
        assert not resumed and running.end_at == sandbox.end_at

    async def test_memory_can_be_left_behind_and_cannot_come_back_once_it_was(self, control: Control) -> None:
        first, second = await paused(control), await paused(control, memory=False)
        await control.suspension.connect(control.team.id, first.id, 10, memory=False)
        await control.suspension.connect(control.team.id, second.id, 10, memory=True)
        assert [new.memory for new in control.node.resumed] == [False, False]

    @pytest.mark.parametrize("timeout_s", [0, -1, 3601])
    async def test_a_timeout_outside_the_limits_leaves_it_paused(self, control: Control, timeout_s: int) -> None:
        resting = await paused(control)
        with pytest.raises(InvalidRequest, match="timeout"):
            await control.suspension.connect(control.team.id, resting.id, timeout_s)
        assert (await control.row(resting.id)).state is State.PAUSED

    async def test_a_state_that_is_gone_is_an_error_and_the_sandbox_stays_listed_and_can_be_killed(
        self, control: Control
    ) -> None:
        resting = await paused(control)
        control.node.saved.clear()
        with pytest.raises(StateUnusable, match="missing"):
            await control.suspension.connect(control.team.id, resting.id, 10)
        row = await control.row(resting.id)
        assert (row.state, row.pause_mode) == (State.PAUSED, PauseMode.FULL)
        await control.ending.kill(control.team.id, resting.id)

    async def test_a_template_that_was_deleted_meanwhile_does_not_matter(self, control: Control) -> None:
        sandbox = await create(control)
        snapshot = await control.snapshots.take(control.team.id, sandbox.id, name=None)
        child = await create(control, replace(BASE, template=snapshot.id))
        await control.suspension.pause(control.team.id, child.id)
        assert await control.snapshots.delete(control.team.id, snapshot.id)
        assert (await control.suspension.connect(control.team.id, child.id, 10))[0].state is State.RUNNING


class TestDeadline:
    async def test_a_sandbox_pauses_at_its_deadline_if_it_was_asked_to(self, control: Control) -> None:
        kept, files = await create(control, PAUSES), await create(control, replace(PAUSES, pause_memory=False))
        ends = await create(control)
        control.clock.advance(301)
        assert await control.deadlines.expire() == 3
        states = {row.id: (row.state, row.pause_mode) for row in await control.sandboxes.query()}
        assert states[kept.id] == (State.PAUSED, PauseMode.FULL)
        assert states[files.id] == (State.PAUSED, PauseMode.FILESYSTEM)
        assert states[ends.id][0] is State.ENDED

    async def test_a_timeout_of_zero_pauses_at_once(self, control: Control) -> None:
        sandbox = await create(control, PAUSES)
        await control.changes.set_timeout(control.team.id, sandbox.id, 0)
        assert (await control.row(sandbox.id)).state is State.PAUSED

    async def test_after_a_resume_the_deadline_pauses_it_again(self, control: Control) -> None:
        resting = await paused(control, PAUSES)
        await control.suspension.connect(control.team.id, resting.id, 10)
        control.clock.advance(11)
        await control.deadlines.expire()
        assert (await control.row(resting.id)).state is State.PAUSED


class TestWake:
    async def test_a_request_wakes_a_sandbox_that_lets_itself_be_woken_for_five_minutes_or_more(
        self, control: Control
    ) -> None:
        resting = await paused(control, replace(BASE, auto_resume=True, timeout_s=10))
        woken = await control.suspension.wake(resting.id)
        assert woken is not None and woken.end_at == control.clock.now + timedelta(seconds=300)

    async def test_the_limit_of_the_server_is_the_limit_of_a_wake(self, tmp_path: Path) -> None:
        async with control_plane(tmp_path, FakeNode(), limits=SandboxLimits(max_timeout_s=60)) as control:
            resting = await paused(control, replace(BASE, auto_resume=True, timeout_s=10))
            woken = await control.suspension.wake(resting.id)
            assert woken is not None and woken.end_at == control.clock.now + timedelta(seconds=60)

    async def test_others_stay_as_they_are(self, control: Control) -> None:
        plain = await paused(control)
        files = await paused(control, replace(BASE, auto_resume=True), memory=False)
        for resting in (plain, files):
            assert await control.suspension.wake(resting.id) is None
            assert (await control.row(resting.id)).state is State.PAUSED

    async def test_many_requests_wake_it_once(self, control: Control) -> None:
        resting = await paused(control, replace(BASE, auto_resume=True))
        woken = await asyncio.gather(*(control.suspension.wake(resting.id) for _ in range(20)))
        assert all(one is not None and one.state is State.RUNNING for one in woken)
        assert len(control.node.resumed) == 1

    async def test_a_running_one_is_awake_and_an_ended_one_is_not_found(self, control: Control) -> None:
        sandbox = await create(control)
        woken = await control.suspension.wake(sandbox.id)
        assert woken is not None and woken.id == sandbox.id
        await control.ending.kill(control.team.id, sandbox.id)
        with pytest.raises(NotFound):
            await control.suspension.wake(sandbox.id)


class TestSnapshots:
    async def snapshots(self, control: Control) -> list[Template]:
        return list(await control.snapshots.page(control.team.id, source=None, name=None, limit=100))

    async def test_a_snapshot_is_something_to_create_from_and_its_source_goes_on(self, control: Control) -> None:
        sandbox = await create(control)
        snapshot = await control.snapshots.take(control.team.id, sandbox.id, name=None)
        assert (await control.row(sandbox.id)).state is State.RUNNING
        children = [await create(control, replace(BASE, template=snapshot.id)) for _ in range(3)]
        assert {new.checkpoint for new in control.node.started[1:]} == {snapshot.checkpoint}
        assert len({child.envd_token for child in (*children, sandbox)}) == 4
        assert [each.id for each in await self.snapshots(control)] == [snapshot.id]
        assert [each.id for each in await control.templates.list(control.team.id)] == ["t1"]

    async def test_a_snapshot_outlives_its_source_and_what_was_made_of_it_outlives_the_snapshot(
        self, control: Control
    ) -> None:
        sandbox = await create(control)
        snapshot = await control.snapshots.take(control.team.id, sandbox.id, name="kept")
        await control.ending.kill(control.team.id, sandbox.id)
        child = await create(control, replace(BASE, template="kept"))
        assert await control.snapshots.delete(control.team.id, "kept:default")
        assert control.node.saved == {} and control.node.discarded == [snapshot.checkpoint]
        assert (await control.row(child.id)).state is State.RUNNING
        assert not await control.snapshots.delete(control.team.id, "kept")
        with pytest.raises(NotFound):
            await create(control, replace(BASE, template="kept"))

    async def test_the_same_name_again_replaces_the_state_and_keeps_the_identity(self, control: Control) -> None:
        sandbox = await create(control)
        first = await control.snapshots.take(control.team.id, sandbox.id, name="mine")
        second = await control.snapshots.take(control.team.id, sandbox.id, name="mine")
        assert (second.id, second.name) == (first.id, "mine") and second.checkpoint != first.checkpoint
        assert set(control.node.saved) == {second.checkpoint}
        assert len(await self.snapshots(control)) == 1

    async def test_snapshots_of_one_name_taken_at_once_leave_one(self, control: Control) -> None:
        sandbox, other = await create(control), await create(control)
        taken = await asyncio.gather(
            *(control.snapshots.take(control.team.id, each.id, name="mine") for each in (sandbox, other, sandbox))
        )
        (left,) = await self.snapshots(control)
        assert left.checkpoint in {each.checkpoint for each in taken}
        assert set(control.node.saved) == {left.checkpoint}

    @pytest.mark.parametrize("name", ["", "Ünicode", "a b", "-x", "a/b", "a:b", "x" * 200, "UPPER"])
    async def test_a_name_that_cannot_be_one_is_refused_before_anything_is_written(
        self, control: Control, name: str
    ) -> None:
        sandbox = await create(control)
        with pytest.raises(InvalidRequest, match="named"):
            await control.snapshots.take(control.team.id, sandbox.id, name=name)
        assert control.node.saved == {}

    async def test_the_name_of_a_template_is_taken(self, control: Control) -> None:
        sandbox = await create(control)
        await control.templates.put(replace(control.template, id="t2", name="built", team_id=control.team.id))
        for name in ("base", "built"):
            with pytest.raises(Conflict, match="choose another name"):
                await control.snapshots.take(control.team.id, sandbox.id, name=name)

    async def test_templates_and_what_others_own_are_not_deleted_as_snapshots(self, control: Control) -> None:
        snapshot = await control.snapshots.take(control.team.id, (await create(control)).id, name="mine")
        assert not await control.snapshots.delete(control.team.id, "base")
        assert not await control.snapshots.delete("team_other", "mine")
        assert not await control.snapshots.delete("team_other", snapshot.id)
        assert len(control.node.saved) == 1

    async def test_a_template_with_saved_state_is_not_deleted_as_a_snapshot(self, control: Control) -> None:
        snapshot = await control.snapshots.take(control.team.id, (await create(control)).id, name=None)
        await control.templates.put(replace(snapshot, id="t9", name="app", source=None))
        assert not await control.snapshots.delete(control.team.id, "app")
        assert await control.templates.resolve(control.team.id, "app") is not None

    async def test_a_sweep_keeps_snapshots_and_states_of_paused_ones_and_removes_what_nobody_has(
        self, control: Control
    ) -> None:
        resting, sandbox = await paused(control), await create(control)
        snapshot = await control.snapshots.take(control.team.id, sandbox.id, name=None)
        await control.node.capture(sandbox.id, "snporphan", memory=True)
        repairs = await control.reconciler.once()
        assert repairs.freed == ("directory of snporphan",)
        assert set(control.node.saved) == {resting.id, snapshot.checkpoint}


class TestForks:
    async def test_children_begin_with_the_parents_state_and_have_their_own_identity(self, control: Control) -> None:
        asked = replace(
            BASE, metadata={"a": "b"}, env_vars={"X": "y"}, network=NetworkPolicy(allow_public_traffic=False)
        )
        parent = await create(control, replace(asked, on_timeout=OnTimeout.PAUSE, auto_resume=True))
        children = await control.snapshots.fork(control.team.id, parent.id, count=3, timeout_s=30)
        rows = [child for child in children if isinstance(child, Sandbox)]
        assert len(rows) == 3 and len({row.id for row in (parent, *rows)}) == 4
        assert len({row.envd_token for row in (parent, *rows)}) == len({row.traffic_token for row in rows}) + 1 == 4
        for row in rows:
            assert (row.metadata, row.env_vars, row.network) == (parent.metadata, parent.env_vars, parent.network)
            assert (row.template_id, row.on_timeout, row.auto_resume) == ("t1", OnTimeout.PAUSE, True)
            assert row.end_at == control.clock.now + timedelta(seconds=30)
        assert (await control.row(parent.id)).end_at == parent.end_at
        assert control.node.saved == {}, "what the children began with was for them alone"

    @pytest.mark.parametrize("count", [0, -1, 101])
    async def test_a_count_outside_the_limits_is_refused(self, control: Control, count: int) -> None:
        sandbox = await create(control)
        with pytest.raises(InvalidRequest, match="count"):
            await control.snapshots.fork(control.team.id, sandbox.id, count=count, timeout_s=10)

    @pytest.mark.parametrize("timeout_s", [0, 3601])
    async def test_a_timeout_outside_the_limits_is_refused_before_anything_is_written(
        self, control: Control, timeout_s: int
    ) -> None:
        sandbox = await create(control)
        with pytest.raises(InvalidRequest, match="timeout"):
            await control.snapshots.fork(control.team.id, sandbox.id, count=1, timeout_s=timeout_s)
        assert control.node.saved == {}

    async def test_each_child_has_its_own_outcome(self, control: Control) -> None:
        parent = await create(control)
        outcomes = await control.snapshots.fork(control.team.id, parent.id, count=12, timeout_s=10)
        assert sum(isinstance(one, Sandbox) for one in outcomes) == 9, "ten run at most, and one is the parent"
        assert all(isinstance(one, NoCapacity) for one in outcomes if not isinstance(one, Sandbox))
        assert control.node.saved == {}

    async def test_children_that_cannot_start_leave_nothing(self, tmp_path: Path) -> None:
        async with control_plane(tmp_path, FakeNode()) as control:
            parent = await create(control)
            control.node.__class__ = type("Broken", (BrokenNode,), {})  # from now on
            control.node.error = MachineFailed("no more slots")  # type: ignore[attr-defined]
            outcomes = await control.snapshots.fork(control.team.id, parent.id, count=2, timeout_s=10)
            assert [str(one) for one in outcomes] == ["no more slots"] * 2
            assert set(control.node.running) == {parent.id} and control.node.saved == {}
