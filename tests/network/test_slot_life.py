"""The life of slots: crashes, repairs, neighbours, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from tests.network.conftest import POOL, Open, some_range
from tests.network.test_reach import guest_with
from tests.network.world import DNS, OTHER, WEB, Guest, World, edge_get

from sandlot.engine.core.errors import Unavailable
from sandlot.engine.core.model import NetworkPolicy
from sandlot.engine.node.network import block, kernel
from sandlot.engine.node.network.slots import Slots

OPEN = NetworkPolicy()
SERVER = """
import asyncio, os, signal, sys
from ipaddress import IPv4Network
from pathlib import Path
from sandlot.engine.node import processes
from sandlot.engine.core.model import NetworkPolicy
from sandlot.engine.node.network.slots import Slots

async def main():
    slots = Slots(Path(sys.argv[1]), sys.argv[2], IPv4Network(sys.argv[3]), dns_servers=(sys.argv[4],), warm=2)
    await slots.open()
    await slots.acquire("i1", NetworkPolicy(deny_out=(sys.argv[5],)))
    await slots.acquire("i2", NetworkPolicy())
    print("ready", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

processes.enter_private_mounts()
asyncio.run(main())
"""


def crashed_server(data_dir: Path, instance: str) -> None:
    """A server that claims two slots, in its own mount namespace as the real one, and is killed."""
    done = subprocess.run(
        [sys.executable, "-c", SERVER, str(data_dir), instance, str(POOL), DNS, OTHER],
        env={**os.environ, "PYTHONPATH": "src"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout == "ready\n" and done.returncode == -signal.SIGKILL, done.stderr


def left_of(instance: str, pool: IPv4Network) -> list[str]:
    """Everything on this host that carries the instance's name, or fences its addresses."""
    pins = [path.name for path in Path("/run/netns").iterdir()]
    tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout.split()
    rules = subprocess.run(["iptables", "-S"], capture_output=True, text=True, check=False).stdout.splitlines()
    blocks = [path.name for path in block.REGISTRY.iterdir()]
    routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout.splitlines()
    fences = [f"{instance}: {line}" for line in routes if str(pool) in line]
    everything: Iterable[str] = (*fences, *pins, *(name for _, name in socket.if_nameindex()), *tables, *rules, *blocks)
    return [name for name in everything if instance in name]


async def test_a_killed_server_comes_back_to_slots_that_kept_their_policy_and_their_services(
    world: World, open_slots: Open, tmp_path: Path
) -> None:
    instance = secrets.token_hex(3)
    crashed_server(tmp_path, instance)
    slots = await open_slots(data_dir=tmp_path, instance=instance, warm=1)
    claims = await slots.claims()
    assert set(claims) == {"i1", "i2"}
    guest = Guest(claims["i1"])
    with guest.web(8080):
        assert (await edge_get(guest.slot, 8080))["to"] == guest.slot.guest_address
    assert await guest.reaches(WEB) and not await guest.reaches(OTHER)
    assert await slots.adopt("i1", NetworkPolicy(deny_out=(OTHER,))) == guest.slot
    assert await guest.resolve("www.example.com") == (0, [WEB])
    assert not await guest.reaches(OTHER)
    await slots.release("i1")
    await slots.release("i2")
    assert not await slots.claims()


async def test_slots_that_nobody_claims_are_removed_on_start(open_slots: Open, tmp_path: Path) -> None:
    instance = secrets.token_hex(3)
    crashed_server(tmp_path, instance)
    for claim in (tmp_path / "network" / "claims").iterdir():
        claim.unlink()
    slots = await open_slots(data_dir=tmp_path, instance=instance, warm=0)
    assert kernel.found(instance) == set() and not await slots.claims()


async def test_claims_whose_namespaces_are_gone_are_dropped_on_start(open_slots: Open, tmp_path: Path) -> None:
    instance = secrets.token_hex(3)
    crashed_server(tmp_path, instance)
    subprocess.run(["ip", "netns", "del", f"sl-{instance}-0r"], check=True)
    slots = await open_slots(data_dir=tmp_path, instance=instance, warm=0)
    assert set(await slots.claims()) == {"i2"} and kernel.found(instance) == {1}
    assert [path.name for path in (tmp_path / "network" / "claims").iterdir()] == ["1"]


async def test_nothing_of_a_former_life_is_left_in_a_slot(world: World, open_slots: Open) -> None:
    slots = await open_slots(range=some_range(31))  # one slot: the next sandbox gets the same
    guest = await guest_with(slots, NetworkPolicy(allow_internet=False, allow_out=("www.example.com",)))
    first = guest.slot
    wire = await guest.do(lambda: socket.create_connection((WEB, 80), 3))
    subprocess.run(["ip", "-n", first.netns.name, "link", "add", "left", "type", "veth"], check=True)
    with wire, guest.web(8080):
        assert await edge_get(first, 8080)
        old = first.netns.stat().st_ino
        await slots.release("i1")
        with pytest.raises(OSError, match="No route to host"):
            await edge_get(first, 8080)
        second = Guest(await slots.acquire("i2", OPEN))
        assert second.slot == first and second.slot.netns.stat().st_ino != old
        with pytest.raises(OSError):
            await edge_get(second.slot, 8080)  # the old life's server is not in the new one
        assert await second.do(lambda: sorted(name for _, name in socket.if_nameindex())) == ["eth0", "lo"]
        assert (await second.get(WEB))["to"] == WEB and await second.reaches(OTHER, 8080)
        with second.web(8080):
            assert (await edge_get(second.slot, 8080))["to"] == second.slot.guest_address


async def test_destroy_leaves_nothing(open_slots: Open, tmp_path: Path) -> None:
    instance, pool = secrets.token_hex(3), some_range(24)
    slots = await open_slots(instance=instance, data_dir=tmp_path, warm=2, range=pool)
    await slots.acquire("i1", OPEN)
    assert len(left_of(instance, pool)) > 5
    await slots.destroy()
    assert left_of(instance, pool) == [] and not list((tmp_path / "network" / "claims").iterdir())
    await slots.destroy()


async def test_two_instances_live_side_by_side(world: World, open_slots: Open) -> None:
    one, two = await asyncio.gather(open_slots(warm=1), open_slots(warm=1))
    first, second = await guest_with(one), await guest_with(two)
    assert first.slot.address != second.slot.address
    await one.destroy()
    assert await second.reaches(WEB) and await second.resolve("www.example.com") == (0, [WEB])
    with second.web(8080):
        assert await edge_get(second.slot, 8080)


async def test_instances_that_start_at_once_take_different_blocks(open_slots: Open) -> None:
    started = await asyncio.gather(*(open_slots() for _ in range(4)))
    blocks = {(await slots.acquire("i1", OPEN)).address.rsplit(".", 1)[0] for slots in started}
    assert len(blocks) == 4


async def test_a_block_is_remembered_and_never_one_that_the_host_routes_elsewhere(
    open_slots: Open, tmp_path: Path
) -> None:
    pool, instance = some_range(21), secrets.token_hex(3)
    low, high = pool.subnets(new_prefix=22)
    slots = await open_slots(range=pool, data_dir=tmp_path, instance=instance)
    assert (await slots.acquire("i1", OPEN)).address == str(low[1])
    await slots.release("i1")
    await slots.close()
    route = ["blackhole", str(IPv4Network((low[256], 24)))]
    subprocess.run(["ip", "route", "add", *route], check=True)
    try:
        moved = await open_slots(range=pool, data_dir=tmp_path, instance=instance)
        assert (await moved.acquire("i1", OPEN)).address == str(high[1])
        with pytest.raises(Unavailable, match="SANDLOT_NETWORK_RANGE"):
            await block.take(tmp_path / "other", "ffffff", pool, keep=False)
    finally:
        subprocess.run(["ip", "route", "del", *route], check=True)


async def test_the_fence_of_an_instance_whose_data_was_deleted_is_taken_down_by_the_next(
    open_slots: Open, tmp_path: Path
) -> None:
    pool = some_range(22)
    lost = await open_slots(range=pool, data_dir=tmp_path / "lost")
    shutil.rmtree(tmp_path / "lost")
    found = await open_slots(range=pool)
    assert (await found.acquire("i1", OPEN)).address == str(pool[1])
    await lost.destroy()
    assert await found.claims()


async def test_fifty_rounds_leak_nothing(world: World, open_slots: Open) -> None:
    instance = secrets.token_hex(3)
    slots = await open_slots(instance=instance, warm=2)
    await settled(slots)

    def measure() -> tuple[int, int, int]:
        namespaces = subprocess.run(["ip", "netns"], capture_output=True, check=True).stdout.count(instance.encode())
        return len(list(Path("/proc/self/fd").iterdir())), namespaces, len(kernel.found(instance))

    before = measure()
    for round in range(50):
        policy = NetworkPolicy(deny_out=("0.0.0.0/0",), allow_out=("*.test",)) if round % 2 else OPEN
        guest = Guest(await slots.acquire(f"i{round}", policy))
        if round % 10 == 0:
            assert await guest.resolve("www.example.com") == (0, [WEB])
        await slots.release(f"i{round}")
    await settled(slots)
    assert measure() == before


async def settled(slots: Slots) -> None:
    """Wait for the slots that are made in the background."""
    async with asyncio.timeout(10):
        while slots.ready < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_many_at_once_all_get_a_slot_of_their_own(open_slots: Open) -> None:
    slots = await open_slots(warm=2)
    taken = await asyncio.gather(*(slots.acquire(f"i{number}", OPEN) for number in range(12)))
    assert len({slot.address for slot in taken}) == 12
    await asyncio.gather(*(slots.release(f"i{number}") for number in range(12)))
    assert not await slots.claims()


async def test_an_acquire_that_is_cancelled_leaves_no_claim_and_no_slot(open_slots: Open) -> None:
    instance = secrets.token_hex(3)
    slots = await open_slots(instance=instance)
    for delay in (0, 0.003, 0.006, 0.01, 0.015, 0.02, 0.03, 0.05):
        task = asyncio.ensure_future(slots.acquire("i1", NetworkPolicy(deny_out=(WEB,))))
        await asyncio.sleep(delay)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled():
            await slots.release("i1")
        assert not await slots.claims()
        assert len(kernel.found(instance)) == slots.ready, delay
    await slots.acquire("i1", OPEN)


async def test_closing_and_destroying_while_slots_are_being_made_leaves_nothing(open_slots: Open) -> None:
    for delay in (0, 0.004, 0.008, 0.015, 0.03):
        instance, pool = secrets.token_hex(3), some_range(24)
        slots = await open_slots(instance=instance, range=pool, warm=1)
        await slots.acquire("i1", OPEN)  # the next slot is being made from here on
        await asyncio.sleep(delay)
        await slots.destroy()
        await asyncio.sleep(0.1)
        assert left_of(instance, pool) == [], delay
