"""What sandboxes go through when nothing goes wrong at the same moment."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.control import Control, control_plane
from tests.fakes import BrokenNode, FakeNode
from tests.rows import a_row

from sandlot.engine.control.sandbox_request import NewSandbox
from sandlot.engine.control.sandbox_states import MOVES
from sandlot.engine.core.errors import (
    Conflict,
    InvalidRequest,
    MachineFailed,
    NoCapacity,
    NotFound,
    WrongState,
)
from sandlot.engine.core.ids import parse_sandbox_id
from sandlot.engine.core.model import NetworkPolicy, OnTimeout, Sandbox, State

BASE = NewSandbox(template="base")


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[Control]:
    async with control_plane(tmp_path, FakeNode()) as control:
        yield control


async def create(control: Control, new: NewSandbox = BASE) -> Sandbox:
    return await control.creation.create(control.team.id, new)


def test_every_state_is_in_the_table_and_ends_well() -> None:
    assert set(MOVES) == set(State)
    assert MOVES[State.ENDED] == frozenset()
    for state in set(State) - {State.ENDED, State.STOPPING}:
        assert State.STOPPING in MOVES[state], "a sandbox can be ended from everywhere"
        assert State.ENDED not in MOVES[state], "and only after its machine was stopped"


async def test_moves_that_are_not_in_the_table_are_refused_and_change_nothing(control: Control) -> None:
    """For every pair of states, on a row of the store; nobody hears of what was refused."""
    heard: list[Sandbox] = []
    control.states.on_change(heard.append)
    for number, (old, new) in enumerate(itertools.product(State, State)):
        row = a_row(id=f"i{number}", team_id=control.team.id, state=old)
        assert await control.states.add(row, most=1000)
        row = await control.row(row.id)
        heard.clear()
        if new is old or new in MOVES[old]:
            assert (await control.states.swap(row, replace(row, state=new))).state is new
            assert [each.state for each in heard] == [new]
            continue
        with pytest.raises(WrongState, match=f"is {old.value}; it cannot become {new.value}"):
            await control.states.swap(row, replace(row, state=new))
        assert await control.row(row.id) == row and not heard


def test_the_older_form_of_ids_is_understood() -> None:
    assert parse_sandbox_id("i123-client-x") == parse_sandbox_id("i123") == "i123"


class TestCreate:
    async def test_gives_a_running_sandbox_with_identity_and_deadline(self, control: Control) -> None:
        sandbox = await create(control, replace(BASE, timeout_s=60, metadata={"a": "b"}, env_vars={"X": "1"}))
        assert re.fullmatch(r"i[a-z0-9]{20}", sandbox.id)
        assert re.fullmatch(r"[0-9a-f]{64}", sandbox.envd_token or "")
        assert sandbox.traffic_token is None
        assert sandbox.state is State.RUNNING
        assert sandbox.end_at == control.clock.now + timedelta(seconds=60)
        assert (sandbox.template_name, sandbox.runtime, sandbox.envd_version) == ("base", "fake", "0.6.13")
        assert sandbox.machine == control.node.running[sandbox.id]
        assert await control.row(sandbox.id) == sandbox
        (asked,) = control.node.started
        assert (asked.envd_token, asked.env_vars) == (sandbox.envd_token, {"X": "1"})

    async def test_two_sandboxes_share_neither_id_nor_token(self, control: Control) -> None:
        first, second = await create(control), await create(control)
        assert first.id != second.id
        assert first.envd_token != second.envd_token

    async def test_finds_the_template_by_id_name_or_default_tag_and_counts_it(self, control: Control) -> None:
        for ref in ("t1", "base", "base:default"):
            assert (await create(control, replace(BASE, template=ref))).template_id == "t1"
        await control.plane.close()
        counted = await control.templates.resolve(None, "t1")
        assert counted is not None
        assert counted.spawn_count == 3

    async def test_takes_the_runtime_of_the_template(self, control: Control) -> None:
        await control.templates.put(replace(control.template, id="t2", name="other", runtime="container"))
        assert (await create(control, NewSandbox(template="other"))).runtime == "container"

    async def test_an_unknown_template_is_not_found(self, control: Control) -> None:
        with pytest.raises(NotFound, match="template 'nope' not found"):
            await create(control, NewSandbox(template="nope"))

    async def test_an_unsecured_sandbox_has_no_token(self, control: Control) -> None:
        assert (await create(control, replace(BASE, secure=False))).envd_token is None

    async def test_closed_traffic_gives_a_traffic_token(self, control: Control) -> None:
        closed = NetworkPolicy(allow_public_traffic=False)
        assert re.fullmatch(r"[0-9a-f]{64}", (await create(control, replace(BASE, network=closed))).traffic_token or "")
        with pytest.raises(InvalidRequest, match="secure"):
            await create(control, replace(BASE, network=closed, secure=False))

    @pytest.mark.parametrize("timeout_s", [0, -1, 3601, 10**30])
    async def test_a_timeout_outside_the_limits_is_refused(self, control: Control, timeout_s: int) -> None:
        with pytest.raises(InvalidRequest, match="timeout"):
            await create(control, replace(BASE, timeout_s=timeout_s))
        assert await control.all_states() == []

    async def test_files_alone_are_kept_only_by_a_pause_that_no_request_ends(self, control: Control) -> None:
        with pytest.raises(InvalidRequest, match="autoPauseMemory"):
            await create(control, replace(BASE, pause_memory=False))
        pauses = replace(BASE, on_timeout=OnTimeout.PAUSE, pause_memory=False)
        with pytest.raises(InvalidRequest, match="autoResume"):
            await create(control, replace(pauses, auto_resume=True))
        assert (await create(control, pauses)).on_timeout is OnTimeout.PAUSE

    async def test_the_most_sandboxes_at_once_is_kept_also_by_a_crowd(self, control: Control) -> None:
        results = await asyncio.gather(*(create(control) for _ in range(15)), return_exceptions=True)
        assert sum(isinstance(result, Sandbox) for result in results) == 10
        refused = [result for result in results if not isinstance(result, Sandbox)]
        assert all(isinstance(result, NoCapacity) for result in refused)
        assert len(control.node.running) == 10
        await control.ending.kill(control.team.id, next(iter(control.node.running)))
        await create(control)

    @pytest.mark.parametrize(
        ("error", "seen"),
        [
            (MachineFailed("no slots"), MachineFailed),
            (NoCapacity("host is full"), NoCapacity),
            (RuntimeError("a bug, with /a/host/path"), MachineFailed),
            (TimeoutError(), MachineFailed),
        ],
    )
    async def test_a_start_that_fails_ends_the_row_and_frees_the_host(
        self, tmp_path: Path, error: Exception, seen: type[Exception]
    ) -> None:
        async with control_plane(tmp_path, BrokenNode(error)) as control:
            with pytest.raises(seen) as failure:
                await create(control)
            (row,) = await control.sandboxes.query()
            assert row.state is State.ENDED
            assert row.end_reason == str(failure.value)
            assert "/a/host/path" not in str(failure.value)
            assert control.node.leftovers == set()
            with pytest.raises(NotFound):
                await control.lookup.get(control.team.id, row.id)


class TestIdempotencyKey:
    KEYED = replace(BASE, idempotency_key="k-1")

    async def test_a_repeat_gives_the_same_sandbox(self, control: Control) -> None:
        first = await create(control, self.KEYED)
        assert await create(control, self.KEYED) == first
        assert len(control.node.started) == 1

    async def test_a_repeat_gives_the_sandbox_as_it_is_now(self, control: Control) -> None:
        first = await create(control, self.KEYED)
        extended = await control.changes.set_timeout(control.team.id, first.id, 3000)
        assert await create(control, self.KEYED) == extended

    async def test_a_different_request_with_the_same_key_is_a_conflict(self, control: Control) -> None:
        await create(control, self.KEYED)
        for other in (
            replace(self.KEYED, timeout_s=301),
            replace(self.KEYED, metadata={"a": "b"}),
            replace(self.KEYED, env_vars={"a": "b"}),
            replace(self.KEYED, network=NetworkPolicy(allow_internet=False)),
        ):
            with pytest.raises(Conflict, match="different request"):
                await create(control, other)
        assert len(control.node.started) == 1

    async def test_the_key_of_a_sandbox_that_ended_makes_no_second_one(self, control: Control) -> None:
        first = await create(control, self.KEYED)
        await control.ending.kill(control.team.id, first.id)
        with pytest.raises(Conflict, match="ended"):
            await create(control, self.KEYED)

    async def test_a_repeat_is_answered_when_the_server_is_full(self, tmp_path: Path, control: Control) -> None:
        first = await create(control, self.KEYED)
        await asyncio.gather(*(create(control) for _ in range(9)))
        assert await create(control, self.KEYED) == first

    async def test_a_request_that_failed_can_be_repeated(self, tmp_path: Path) -> None:
        node = BrokenNode()
        async with control_plane(tmp_path, node) as control:
            with pytest.raises(MachineFailed):
                await create(control, self.KEYED)
            with pytest.raises(MachineFailed):
                await create(control, self.KEYED)
            assert len(await control.sandboxes.query()) == 2


class TestReading:
    async def test_another_teams_sandbox_is_not_found(self, control: Control) -> None:
        sandbox = await create(control)
        for call in (
            control.lookup.get("team_other", sandbox.id),
            control.ending.kill("team_other", sandbox.id),
            control.changes.set_timeout("team_other", sandbox.id, 1),
            control.suspension.connect("team_other", sandbox.id, 1),
            control.changes.set_network("team_other", sandbox.id, NetworkPolicy()),
        ):
            with pytest.raises(NotFound):
                await call
        assert (await control.row(sandbox.id)).revision == sandbox.revision

    async def test_get_understands_the_older_form_of_ids(self, control: Control) -> None:
        sandbox = await create(control)
        assert await control.lookup.get(control.team.id, f"{sandbox.id}-client") == sandbox

    async def test_an_ended_sandbox_is_found_only_when_asked_for(self, control: Control) -> None:
        sandbox = await create(control)
        await control.ending.kill(control.team.id, sandbox.id)
        with pytest.raises(NotFound):
            await control.lookup.get(control.team.id, sandbox.id)
        ended = await control.lookup.get(control.team.id, sandbox.id, include_ended=True)
        assert (ended.state, ended.end_reason, ended.ended_at) == (State.ENDED, "killed", control.clock.now)

    async def test_pages_lead_to_the_end_and_the_last_has_no_token(self, control: Control) -> None:
        made = []
        for _ in range(5):
            made.append((await create(control)).id)
            control.clock.advance(1)
        await control.ending.kill(control.team.id, made.pop())
        seen, token = [], None
        for expected in (2, 2):
            page = await control.lookup.list(control.team.id, limit=2, token=token)
            assert len(page.sandboxes) == expected
            seen += [sandbox.id for sandbox in page.sandboxes]
            token = page.next_token
        assert token is None
        assert seen == made[::-1]

    @pytest.mark.parametrize(
        "token", ["x", "\x00", "é", "bnVsbA", "WzEsMl0", "W10", "W" * 9999, "WyIyMDMwLTAxLTAxIiwgImEiXQ"]
    )
    async def test_a_token_from_elsewhere_is_refused(self, control: Control, token: str) -> None:
        with pytest.raises(InvalidRequest, match="nextToken"):
            await control.lookup.list(control.team.id, token=token)


class TestDeadlines:
    async def test_set_timeout_puts_the_deadline_sooner_or_later(self, control: Control) -> None:
        sandbox = await create(control)
        for timeout_s in (5, 3000):
            changed = await control.changes.set_timeout(control.team.id, sandbox.id, timeout_s)
            assert changed.end_at == control.clock.now + timedelta(seconds=timeout_s)
        for bad in (-1, 3601):
            with pytest.raises(InvalidRequest):
                await control.changes.set_timeout(control.team.id, sandbox.id, bad)

    async def test_a_timeout_of_zero_ends_it_at_once(self, control: Control) -> None:
        sandbox = await create(control)
        await control.changes.set_timeout(control.team.id, sandbox.id, 0)
        assert (await control.row(sandbox.id)).end_reason == "timeout"
        assert control.node.running == {}

    async def test_connect_and_refresh_never_put_the_deadline_sooner(self, control: Control) -> None:
        sandbox = await create(control, replace(BASE, timeout_s=100))
        connected, resumed = await control.suspension.connect(control.team.id, sandbox.id, 10)
        assert (connected.end_at, resumed) == (sandbox.end_at, False)
        assert (await control.changes.refresh(control.team.id, sandbox.id, 10)).end_at == sandbox.end_at
        connected, _ = await control.suspension.connect(control.team.id, sandbox.id, 200)
        assert connected.end_at == control.clock.now + timedelta(seconds=200)

    async def test_the_sweeper_ends_what_is_due_and_nothing_else(self, control: Control) -> None:
        short = await create(control, replace(BASE, timeout_s=10))
        long = await create(control, replace(BASE, timeout_s=20))
        control.clock.advance(9.9)
        assert await control.deadlines.expire() == 0
        control.clock.advance(0.1)
        assert await control.deadlines.expire() == 1
        assert (await control.row(short.id)).end_reason == "timeout"
        assert set(control.node.running) == {long.id}

    async def test_the_sweeper_wakes_at_the_next_deadline_and_forgets_old_rows(self, control: Control) -> None:
        await create(control, replace(BASE, timeout_s=2))
        naps: list[float] = []

        async def sleep(seconds: float) -> None:
            naps.append(seconds)
            control.clock.advance(seconds)
            if not control.node.running:
                control.clock.advance(3600)
            if not await control.sandboxes.count():
                raise asyncio.CancelledError
            assert len(naps) < 20

        control.clock.advance(0.5)
        with pytest.raises(asyncio.CancelledError):
            await control.deadlines.run(keep_ended=timedelta(hours=1), sleep=sleep)
        assert naps[:2] == [1.0, 0.5]

    async def test_ended_sandboxes_are_forgotten_after_a_while(self, control: Control) -> None:
        sandbox = await create(control)
        await control.ending.kill(control.team.id, sandbox.id)
        control.clock.advance(3600)
        assert await control.deadlines.purge(timedelta(hours=2)) == 0
        assert await control.deadlines.purge(timedelta(minutes=59)) == 1


class TestKill:
    async def test_frees_the_host_and_is_not_found_the_second_time(self, control: Control) -> None:
        sandbox = await create(control)
        await control.ending.kill(control.team.id, sandbox.id)
        assert control.node.running == {}
        with pytest.raises(NotFound):
            await control.ending.kill(control.team.id, sandbox.id)

    async def test_a_hundred_cycles_leave_nothing_behind(self, control: Control) -> None:
        for _ in range(100):
            await control.ending.kill(control.team.id, (await create(control)).id)
        assert control.node.running == {}
        assert control.inflight.ids() == frozenset()
        assert control.deadlines.next() is None
        assert set(await control.all_states()) == {State.ENDED}

    async def test_a_machine_that_ends_by_itself_ends_its_sandbox_with_the_reason(self, control: Control) -> None:
        sandbox = await create(control)
        await control.node.crash(sandbox.id, "out of memory")
        row = await control.row(sandbox.id)
        assert (row.state, row.end_reason) == (State.ENDED, "out of memory")
        assert control.node.stopped == [sandbox.id], "what it held on the host is freed too"


class TestNetwork:
    async def test_replaces_what_it_may_reach_and_keeps_who_may_reach_it(self, control: Control) -> None:
        inbound = NetworkPolicy(
            deny_out=("1.1.1.1",), allow_public_traffic=False, mask_request_host="h", https_ports=(1,)
        )
        sandbox = await create(control, replace(BASE, network=inbound))
        changed = await control.changes.set_network(control.team.id, sandbox.id, NetworkPolicy(deny_out=("8.8.8.8",)))
        assert changed.network == replace(inbound, deny_out=("8.8.8.8",))
        assert control.node.policies[sandbox.id] == changed.network
        assert await control.row(sandbox.id) == changed

    async def test_of_many_at_once_the_row_has_the_one_in_force(self, control: Control) -> None:
        sandbox = await create(control)
        policies = [NetworkPolicy(deny_out=(f"10.0.0.{n}",)) for n in range(10)]
        await asyncio.gather(*(control.changes.set_network(control.team.id, sandbox.id, policy) for policy in policies))
        assert (await control.row(sandbox.id)).network == control.node.policies[sandbox.id]


async def test_listeners_hear_every_change_after_it_was_written(control: Control) -> None:
    heard: list[State] = []
    control.states.on_change(lambda sandbox: heard.append(sandbox.state))
    sandbox = await create(control)
    await control.ending.kill(control.team.id, sandbox.id)
    assert heard == [State.RUNNING, State.STOPPING, State.ENDED]


async def test_a_sandbox_in_another_state_is_a_conflict(control: Control) -> None:
    sandbox = await create(control)
    await control.sandboxes.swap(sandbox, replace(sandbox, state=State.PAUSED))
    with pytest.raises(WrongState, match="paused"):
        await control.changes.set_timeout(control.team.id, sandbox.id, 10)
    await control.ending.kill(control.team.id, sandbox.id)
    assert await control.all_states() == [State.ENDED]
