"""When machines are held still, and that nobody who uses one ever finds it so."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.rows import a_row

from sandlot.engine.core.errors import MachineFailed, NotFound
from sandlot.engine.core.model import Sandbox, State
from sandlot.engine.node.idle_freezer import LONGEST_S, IdleFreezer

ID = "i1"


def running_sandbox(sandbox_id: str) -> Sandbox:
    return a_row(id=sandbox_id)


class Machines:
    """Machines that note what is done to them; a test may hold up their freezing."""

    def __init__(self) -> None:
        self.now = 100.0
        self.busy: set[str] = set()
        self.frozen: set[str] = set()
        self.gone: set[str] = set()
        self.asked = 0
        self.thawed = 0
        self.may_freeze = asyncio.Event()
        self.may_freeze.set()
        self.freezing = asyncio.Event()

    async def is_idle(self, sandbox_id: str) -> bool:
        self.asked += 1
        return sandbox_id not in self.busy

    async def freeze(self, sandbox_id: str) -> None:
        self.freezing.set()
        await self.may_freeze.wait()
        self._check(sandbox_id)
        self.frozen.add(sandbox_id)

    async def thaw(self, sandbox_id: str) -> None:
        self.thawed += 1
        self._check(sandbox_id)
        self.frozen.discard(sandbox_id)

    def _check(self, sandbox_id: str) -> None:
        if sandbox_id in self.gone:
            raise NotFound(f"{sandbox_id} is gone")


@pytest.fixture
def machines() -> Machines:
    return Machines()


@pytest.fixture
def stillness(machines: Machines) -> IdleFreezer:
    made = IdleFreezer(
        is_idle=machines.is_idle,
        freeze=machines.freeze,
        thaw=machines.thaw,
        patience_s=5,
        now=lambda: machines.now,
    )
    made.changed(running_sandbox(ID))
    return made


async def at_once(_: float) -> None:
    return None


async def test_a_machine_that_nobody_uses_is_held_still_after_a_while(
    stillness: IdleFreezer, machines: Machines
) -> None:
    machines.now += 4
    await stillness.look(at_once)
    assert machines.asked == 0
    machines.now += 1
    await stillness.look(at_once)
    assert machines.frozen == {ID}
    assert stillness.count() == 1


async def test_a_use_finds_the_machine_running_and_starts_the_wait_anew(
    stillness: IdleFreezer, machines: Machines
) -> None:
    machines.now += 5
    await stillness.look(at_once)
    async with stillness.awake(ID):
        assert not machines.frozen
        machines.now += 60
        await stillness.look(at_once)
        assert not machines.frozen
    machines.now += 4
    await stillness.look(at_once)
    assert not machines.frozen
    machines.now += 1
    await stillness.look(at_once)
    assert machines.frozen == {ID}


async def test_a_machine_in_which_something_runs_goes_on_and_is_asked_ever_more_rarely(
    stillness: IdleFreezer, machines: Machines
) -> None:
    machines.busy.add(ID)
    for _ in range(600):
        machines.now += 1
        await stillness.look(at_once)
    assert not machines.frozen
    assert 600 / LONGEST_S <= machines.asked <= 16
    machines.busy.clear()
    machines.now += LONGEST_S
    await stillness.look(at_once)
    assert machines.frozen == {ID}


async def test_a_use_that_comes_while_the_machine_is_being_frozen_waits_and_thaws_it(
    stillness: IdleFreezer, machines: Machines
) -> None:
    machines.may_freeze.clear()
    machines.now += 5
    looking = asyncio.create_task(stillness.look(at_once))
    await machines.freezing.wait()
    entered = asyncio.Event()

    async def use() -> None:
        async with stillness.awake(ID):
            assert not machines.frozen
            entered.set()

    using = asyncio.create_task(use())
    await asyncio.sleep(0)
    assert not entered.is_set()
    machines.may_freeze.set()
    await asyncio.gather(looking, using)
    assert entered.is_set() and not machines.frozen


async def test_a_use_that_comes_between_the_question_and_the_freezing_wins(
    stillness: IdleFreezer, machines: Machines
) -> None:
    machines.now += 5

    async def used_meanwhile(_: float) -> None:
        async with stillness.awake(ID):
            machines.now += 0.01

    await stillness.look(used_meanwhile)
    assert machines.asked == 1 and not machines.frozen


async def test_many_uses_at_once_thaw_once(stillness: IdleFreezer, machines: Machines) -> None:
    machines.now += 5
    await stillness.look(at_once)

    async def use() -> None:
        async with stillness.awake(ID):
            assert not machines.frozen
            await asyncio.sleep(0)

    await asyncio.gather(*(use() for _ in range(50)))
    assert machines.thawed == 1


async def test_a_sandbox_that_is_moved_is_not_held_still_and_can_be_woken_for_it(
    stillness: IdleFreezer, machines: Machines
) -> None:
    machines.now += 5
    await stillness.look(at_once)
    stillness.changed(replace(running_sandbox(ID), state=State.PAUSING))
    async with stillness.awake(ID):
        assert not machines.frozen
    machines.now += 60
    await stillness.look(at_once)
    assert not machines.frozen


@pytest.mark.parametrize("state", [State.PAUSED, State.ENDED])
async def test_what_rests_or_has_ended_is_none_of_its_business(
    state: State, stillness: IdleFreezer, machines: Machines
) -> None:
    stillness.changed(replace(running_sandbox(ID), state=state))
    machines.now += 60
    await stillness.look(at_once)
    async with stillness.awake(ID):
        assert (machines.asked, machines.thawed) == (0, 0)


async def test_a_machine_that_does_not_stand_still_is_let_go_and_left_alone_for_a_while(
    stillness: IdleFreezer, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(sandbox_id: str) -> None:
        raise MachineFailed("it does not stand still")

    monkeypatch.setattr(stillness, "_freeze", refuse)
    machines.now += 5
    await stillness.look(at_once)
    assert machines.thawed == 1 and stillness.count() == 0
    machines.now += 5
    await stillness.look(at_once)
    assert machines.asked == 1


async def test_waking_a_machine_that_is_gone_is_for_its_user_to_find_out(
    stillness: IdleFreezer, machines: Machines
) -> None:
    machines.now += 5
    await stillness.look(at_once)
    machines.gone.add(ID)
    async with stillness.awake(ID):
        assert stillness.count() == 0


async def test_without_patience_nothing_is_ever_held_still(machines: Machines) -> None:
    never = IdleFreezer(is_idle=machines.is_idle, freeze=machines.freeze, thaw=machines.thaw, patience_s=0)
    looked = asyncio.create_task(never.run(at_once))
    await asyncio.sleep(0.01)
    looked.cancel()
    await asyncio.gather(looked, return_exceptions=True)
    assert machines.asked == 0


async def test_a_look_that_fails_is_followed_by_another(machines: Machines) -> None:
    async def broken(_: str) -> bool:
        machines.asked += 1
        raise RuntimeError("this host is broken on purpose")

    stillness = IdleFreezer(
        is_idle=broken, freeze=machines.freeze, thaw=machines.thaw, patience_s=5, now=lambda: machines.now
    )
    stillness.changed(running_sandbox(ID))
    machines.now += 5
    looking = asyncio.create_task(stillness.run(lambda _: asyncio.sleep(0)))
    while machines.asked < 2:
        assert not looking.done()
        await asyncio.sleep(0)
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
