"""When idle machines are frozen, and that nobody who uses one ever finds it so."""

from __future__ import annotations

import asyncio

import pytest

from sandlot.engine.core.errors import MachineFailed, NotFound
from sandlot.engine.node.idle_freezer import LONGEST_S, IdleFreezer

ID = "i1"


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
def freezer(machines: Machines) -> IdleFreezer:
    made = IdleFreezer(machines, patience_s=5, now=lambda: machines.now)
    made.watch(ID)
    return made


async def at_once(_: float) -> None:
    return None


async def test_a_machine_that_nobody_uses_is_frozen_after_a_while(freezer: IdleFreezer, machines: Machines) -> None:
    machines.now += 4
    await freezer.look(at_once)
    assert machines.asked == 0
    machines.now += 1
    await freezer.look(at_once)
    assert machines.frozen == {ID}
    assert freezer.count() == 1


async def test_a_use_finds_the_machine_running_and_starts_the_wait_anew(
    freezer: IdleFreezer, machines: Machines
) -> None:
    machines.now += 5
    await freezer.look(at_once)
    async with freezer.thawed(ID):
        assert not machines.frozen
        machines.now += 60
        await freezer.look(at_once)
        assert not machines.frozen
    machines.now += 4
    await freezer.look(at_once)
    assert not machines.frozen
    machines.now += 1
    await freezer.look(at_once)
    assert machines.frozen == {ID}


async def test_a_machine_in_which_something_runs_goes_on_and_is_asked_ever_more_rarely(
    freezer: IdleFreezer, machines: Machines
) -> None:
    machines.busy.add(ID)
    for _ in range(600):
        machines.now += 1
        await freezer.look(at_once)
    assert not machines.frozen
    assert 600 / LONGEST_S <= machines.asked <= 16
    machines.busy.clear()
    machines.now += LONGEST_S
    await freezer.look(at_once)
    assert machines.frozen == {ID}


async def test_a_use_that_comes_while_the_machine_is_being_frozen_waits_and_thaws_it(
    freezer: IdleFreezer, machines: Machines
) -> None:
    machines.may_freeze.clear()
    machines.now += 5
    looking = asyncio.create_task(freezer.look(at_once))
    await machines.freezing.wait()
    entered = asyncio.Event()

    async def use() -> None:
        async with freezer.thawed(ID):
            assert not machines.frozen
            entered.set()

    using = asyncio.create_task(use())
    await asyncio.sleep(0)
    assert not entered.is_set()
    machines.may_freeze.set()
    await asyncio.gather(looking, using)
    assert entered.is_set() and not machines.frozen


async def test_a_use_that_comes_between_the_question_and_the_freezing_wins(
    freezer: IdleFreezer, machines: Machines
) -> None:
    machines.now += 5

    async def used_meanwhile(_: float) -> None:
        async with freezer.thawed(ID):
            machines.now += 0.01

    await freezer.look(used_meanwhile)
    assert machines.asked == 1 and not machines.frozen


async def test_many_uses_at_once_thaw_once(freezer: IdleFreezer, machines: Machines) -> None:
    machines.now += 5
    await freezer.look(at_once)

    async def use() -> None:
        async with freezer.thawed(ID):
            assert not machines.frozen
            await asyncio.sleep(0)

    await asyncio.gather(*(use() for _ in range(50)))
    assert machines.thawed == 1


async def test_a_machine_that_is_being_saved_is_thawed_and_stays_so(freezer: IdleFreezer, machines: Machines) -> None:
    machines.now += 5
    await freezer.look(at_once)
    async with freezer.thawed(ID):  # as a pause and a capture do
        assert not machines.frozen
        machines.now += 60
        await freezer.look(at_once)
        assert not machines.frozen


async def test_what_is_paused_or_gone_is_none_of_its_business(freezer: IdleFreezer, machines: Machines) -> None:
    freezer.forget(ID)
    machines.now += 60
    await freezer.look(at_once)
    async with freezer.thawed(ID):
        assert (machines.asked, machines.thawed) == (0, 0)


async def test_a_machine_that_is_paused_and_resumed_during_a_look_is_not_frozen_by_it(
    freezer: IdleFreezer, machines: Machines
) -> None:
    machines.now += 5

    async def resumed_meanwhile(_: float) -> None:
        freezer.forget(ID)
        freezer.watch(ID)

    await freezer.look(resumed_meanwhile)
    assert machines.asked == 1 and not machines.frozen


async def test_a_machine_that_cannot_be_frozen_is_thawed_and_left_alone_for_a_while(
    freezer: IdleFreezer, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(sandbox_id: str) -> None:
        raise MachineFailed("it cannot be frozen")

    monkeypatch.setattr(machines, "freeze", refuse)
    machines.now += 5
    await freezer.look(at_once)
    assert machines.thawed == 1 and freezer.count() == 0
    machines.now += 5
    await freezer.look(at_once)
    assert machines.asked == 1


async def test_waking_a_machine_that_is_gone_is_for_its_user_to_find_out(
    freezer: IdleFreezer, machines: Machines
) -> None:
    machines.now += 5
    await freezer.look(at_once)
    machines.gone.add(ID)
    async with freezer.thawed(ID):
        assert freezer.count() == 0


async def test_without_patience_nothing_is_ever_frozen(machines: Machines) -> None:
    never = IdleFreezer(machines, patience_s=0)
    looked = asyncio.create_task(never.run(at_once))
    await asyncio.sleep(0.01)
    looked.cancel()
    await asyncio.gather(looked, return_exceptions=True)
    assert machines.asked == 0


async def test_a_look_that_fails_is_followed_by_another(
    freezer: IdleFreezer, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: str) -> bool:
        machines.asked += 1
        raise RuntimeError("this host is broken on purpose")

    monkeypatch.setattr(machines, "is_idle", broken)
    machines.now += 5
    looking = asyncio.create_task(freezer.run(lambda _: asyncio.sleep(0)))
    while machines.asked < 2:
        assert not looking.done()
        await asyncio.sleep(0)
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
