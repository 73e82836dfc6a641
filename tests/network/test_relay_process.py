"""The process of the relays: what it may do, and what happens when it breaks."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from tests.network.test_names import BY_NAME, NOERROR, REFUSED
from tests.network.test_reach import NOTHING, guest_with
from tests.network.world import OTHER, WEB, World

from sandlot.engine.core.model import NetworkPolicy
from sandlot.engine.node.network import relays
from sandlot.engine.node.network.slots import Slots

T = TypeVar("T")


def process_of(slots: Slots) -> int:
    pid = slots.relays.pid
    assert pid is not None and pid > 1
    return pid


async def eventually(act: Callable[[], Awaitable[T]]) -> T:
    """What it says once it can: a new process has to start."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await act()
            except OSError:
                await asyncio.sleep(0.1)


async def test_guests_talk_to_a_process_that_is_not_the_server_and_may_do_nothing(slots: Slots) -> None:
    guest = await guest_with(slots)
    assert await guest.resolve("www.example.com") == (NOERROR, [WEB])
    pid = process_of(slots)
    assert pid != os.getpid()
    facts = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    assert set(facts["Uid"].split()) == set(facts["Gid"].split()) == {"65534"}
    assert facts["Groups"].strip() == "" and facts["NoNewPrivs"] == "1"
    assert int(facts["CapEff"], 16) == int(facts["CapPrm"], 16) == 0
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"SANDLOT" not in environment and b"KEY" not in environment


async def test_when_the_process_of_the_relays_dies_another_enforces_the_same(
    slots: Slots,
    world: World,
) -> None:
    named = await guest_with(slots, BY_NAME)
    closed = await guest_with(slots, NOTHING, machine_id="i2")
    first = process_of(slots)
    os.kill(first, signal.SIGKILL)
    await slots.apply("i2", NOTHING)  # nobody has to wait for the new one
    assert (await eventually(lambda: named.get_tls(OTHER, "www.example.com")))["to"] == WEB
    assert process_of(slots) != first
    assert await named.resolve("api.example.com") == (REFUSED, [])
    assert await closed.resolve("www.example.com") == (REFUSED, [])
    await slots.release("i2")
    await slots.apply("i1", NetworkPolicy(dns_servers=()))
    assert await named.resolve("www.example.com") == (REFUSED, [])


async def test_a_process_of_the_relays_that_hangs_is_replaced(
    slots: Slots,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guest = await guest_with(slots, BY_NAME)
    first = process_of(slots)
    monkeypatch.setattr(relays, "ANSWER_S", 0.5)
    os.kill(first, signal.SIGSTOP)
    await slots.apply("i1", NetworkPolicy())
    monkeypatch.setattr(relays, "ANSWER_S", 20)
    assert await eventually(lambda: guest.resolve("api.example.com")) == (NOERROR, [OTHER])
    assert process_of(slots) != first
