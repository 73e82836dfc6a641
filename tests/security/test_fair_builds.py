"""Many builds of one team do not keep another's waiting behind all of them."""

from __future__ import annotations

import asyncio

from sandlot.engine.builds.build_slots import FairSlots


async def test_a_team_with_one_build_is_next_however_many_another_has_queued() -> None:
    slots, order, go, third = FairSlots(2), list[str](), asyncio.Semaphore(0), asyncio.Event()

    async def build(team: str, name: str) -> None:
        async with slots.of(team):
            order.append(name)
            if len(order) == 3:
                third.set()
            await go.acquire()

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(build("loud", f"loud {number}"))
        await asyncio.sleep(0)
        assert slots.locked()
        group.create_task(build("quiet", "quiet"))
        await asyncio.sleep(0)
        go.release()
        await asyncio.wait_for(third.wait(), 30)
        assert order == ["loud 0", "loud 1", "quiet"]
        for _ in range(5):
            go.release()
    assert len(order) == 6 and not slots.locked()


async def test_who_gives_up_waiting_takes_no_slot_along() -> None:
    slots = FairSlots(1)
    async with slots.of("a"):
        holder = slots.of("b")
        waiting = asyncio.create_task(holder.__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(30), slots.of("b"):
        assert slots.locked()
    assert not slots.locked()
