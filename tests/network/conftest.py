from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest
from tests.network import world as outside

from sandlot.engine.node.network.slots import Slots

POOL = IPv4Network("10.214.0.0/17")
Open = Callable[..., Awaitable[Slots]]


def some_range(prefix: int) -> IPv4Network:
    """A range that is picked by chance, so that test runs side by side do not meet."""
    size = 1 << (32 - prefix)
    return IPv4Network((int(IPv4Address("10.215.0.0")) + size * secrets.randbelow(65536 // size), prefix))


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[outside.World]:
    with outside.one_world_at_a_time():
        built = outside.World(tmp_path_factory.mktemp("world"))
        try:
            built.build()
            yield built
        finally:
            built.remove()


@pytest.fixture
async def open_slots(tmp_path: Path) -> AsyncIterator[Open]:
    """Opens the network of an instance; every one that was opened is destroyed at the end."""
    opened: list[Slots] = []

    async def start(**options: Any) -> Slots:
        given = {
            "data_dir": tmp_path / f"data-{len(opened)}",
            "instance": secrets.token_hex(3),
            "range": POOL,
            "dns_servers": (outside.DNS,),
            "warm": 0,
        }
        slots = Slots(**(given | options))
        opened.append(slots)
        await slots.open()
        return slots

    yield start
    for slots in opened:
        await slots.destroy()


@pytest.fixture
async def slots(world: outside.World, open_slots: Open) -> Slots:
    return await open_slots()
