"""What a sandbox reaches and what reaches it, with namespaces as the outside world."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from tests.network import world as outside
from tests.network.conftest import Open
from tests.network.world import FAR, HOST, LAN, METADATA, OTHER, TWICE, WEB, Guest, World, edge_get

from sandlot.engine.core.model import NetworkPolicy
from sandlot.engine.node.network.slots import Slots

OPEN = NetworkPolicy()
NOTHING = NetworkPolicy(allow_internet=False)


async def guest_with(slots: Slots, policy: NetworkPolicy = OPEN, machine_id: str = "i1") -> Guest:
    return Guest(await slots.acquire(machine_id, policy))


@contextlib.contextmanager
def metadata_leads_to_the_world() -> Iterator[None]:
    outside.run("ip", "route", "add", f"{METADATA}/32", "via", WEB)
    try:
        yield
    finally:
        outside.run("ip", "route", "del", f"{METADATA}/32", "via", WEB)


async def test_by_default_the_internet_is_reachable_over_tcp_udp_and_tls(slots: Slots) -> None:
    guest = await guest_with(slots)
    answer = await guest.get(WEB)
    assert (answer["to"], answer["from"]) == (WEB, HOST)
    assert (await guest.get_tls(WEB, "www.example.com"))["tls"] == "www.example.com"
    assert await guest.echoes(WEB)


async def test_private_ranges_are_closed_unless_the_operator_opens_them(slots: Slots, open_slots: Open) -> None:
    guest = await guest_with(slots)
    assert not await guest.reaches(LAN) and not await guest.echoes(LAN)
    opened = await guest_with(await open_slots(allow_private=(IPv4Network("10.199.0.0/24"),)))
    assert (await opened.get(LAN))["to"] == LAN


async def test_a_caller_cannot_open_what_the_operator_closed(slots: Slots) -> None:
    guest = await guest_with(slots, NetworkPolicy(allow_out=("10.0.0.0/8", "169.254.0.0/16", "127.0.0.0/8", HOST)))
    with metadata_leads_to_the_world():
        for address in (LAN, METADATA, HOST):
            assert not await guest.reaches(address), address


async def test_the_metadata_address_of_clouds_is_closed(slots: Slots) -> None:
    guest = await guest_with(slots)
    with metadata_leads_to_the_world():
        assert (await asyncio.to_thread(socket.create_connection, (METADATA, 80), 2)).close() is None
        assert not await guest.reaches(METADATA)


@pytest.mark.parametrize("bound", ["0.0.0.0", "127.0.0.1"])
async def test_nothing_of_the_host_is_reachable(slots: Slots, bound: str) -> None:
    guest = await guest_with(slots)
    host_end = str(guest.slot.address).rsplit(".", 1)[0] + "." + str(int(guest.slot.address.rsplit(".", 1)[1]) - 1)
    with socket.create_server((bound, 0)) as service, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        port = service.getsockname()[1]
        datagrams.bind((bound, port))
        for address in (HOST, host_end, "127.0.0.1", guest.slot.address, guest.slot.guest_gateway):
            assert not await guest.reaches(address, port), address
            await guest.echoes(address, port)
        datagrams.setblocking(False)
        with pytest.raises(BlockingIOError):
            datagrams.recv(1)


async def test_other_slots_are_unreachable_even_if_the_operator_opens_all_private_ranges(
    open_slots: Open, world: World
) -> None:
    slots = await open_slots(allow_private=(IPv4Network("10.0.0.0/8"),))
    one, two = await guest_with(slots), await guest_with(slots, machine_id="i2")
    neighbour = await guest_with(await open_slots(), machine_id="i3")
    with (
        two.web(8080),
        neighbour.web(8080),
        sniffing(router_of(two), "up") as seen,
        sniffing(router_of(neighbour), "up") as far,
    ):
        for address in (two.slot.address, neighbour.slot.address):
            assert not await one.reaches(address, 8080)
        assert not [packet for packet in seen() + far() if packet[12:14] == b"\x08\x00"]
        assert (await edge_get(two.slot, 8080))["to"] == two.slot.guest_address


async def test_the_world_cannot_reach_into_a_slot(slots: Slots) -> None:
    guest = await guest_with(slots)
    with guest.web(8080):

        def dial() -> bool:
            with contextlib.suppress(OSError), socket.create_connection((guest.slot.address, 8080), 1):
                return True
            return False

        assert not await asyncio.wrap_future(outside.inside(f"/run/netns/{outside.NAME}", dial))
        assert await asyncio.to_thread(dial)


async def test_the_edge_reaches_the_guest_under_every_policy(slots: Slots) -> None:
    guest = await guest_with(slots, NOTHING)
    with guest.web(8080):
        assert (await edge_get(guest.slot, 8080))["to"] == guest.slot.guest_address
        everything = ("0.0.0.0/0", "10.0.0.0/8", guest.slot.address)
        await slots.apply("i1", NetworkPolicy(deny_out=everything, dns_servers=()))
        assert (await edge_get(guest.slot, 8080))["to"] == guest.slot.guest_address
        assert not await guest.reaches(WEB)


async def test_without_internet_nothing_is_reachable_and_refusal_is_quick(slots: Slots) -> None:
    guest = await guest_with(slots, NOTHING)
    with pytest.raises(ConnectionRefusedError):
        await guest.get(WEB)
    assert not await guest.echoes(WEB)


async def test_denied_addresses_are_closed_and_others_open(slots: Slots) -> None:
    guest = await guest_with(slots, NetworkPolicy(deny_out=(WEB, "198.51.100.128/25")))
    assert not await guest.reaches(WEB) and not await guest.reaches(FAR) and not await guest.echoes(FAR)
    assert await guest.reaches(OTHER) and await guest.echoes(OTHER)


async def test_allow_comes_before_deny(slots: Slots) -> None:
    guest = await guest_with(slots, NetworkPolicy(deny_out=("0.0.0.0/0",), allow_out=(WEB, "198.51.100.192/26")))
    assert await guest.reaches(WEB) and await guest.reaches(FAR) and await guest.echoes(FAR)
    assert not await guest.reaches(OTHER) and not await guest.echoes(OTHER)


async def test_a_new_policy_replaces_the_old_one_whole(slots: Slots) -> None:
    guest = await guest_with(slots, NetworkPolicy(deny_out=("0.0.0.0/0",), allow_out=(WEB,)))
    await slots.apply("i1", NetworkPolicy(deny_out=(WEB,)))
    assert not await guest.reaches(WEB) and await guest.reaches(OTHER)
    await slots.apply("i1", OPEN)
    assert await guest.reaches(WEB) and await guest.reaches(OTHER)


async def test_a_new_policy_also_ends_connections_that_are_open(slots: Slots) -> None:
    guest = await guest_with(slots)
    wire = await guest.do(lambda: socket.create_connection((WEB, 80), 3))
    with wire:
        await slots.apply("i1", NetworkPolicy(deny_out=(WEB,)))

        def talk() -> bytes:
            wire.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            return wire.recv(100)

        with pytest.raises(OSError):  # reset, or silence: either will do
            await asyncio.to_thread(talk)


@pytest.mark.parametrize("denied", [False, True])
async def test_answers_that_still_arrive_from_a_newly_denied_address_are_dropped(slots: Slots, denied: bool) -> None:
    guest = await guest_with(slots)

    def begin() -> socket.socket:
        wire = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        wire.settimeout(1)
        wire.connect((WEB, 9999))
        wire.send(TWICE)
        assert wire.recv(100) == TWICE
        return wire

    with await guest.do(begin) as wire:
        if denied:
            await slots.apply("i1", NetworkPolicy(deny_out=(WEB,)))
            with pytest.raises(TimeoutError):
                await asyncio.to_thread(wire.recv, 100)
        else:
            assert await asyncio.to_thread(wire.recv, 100) == TWICE


async def test_packets_with_a_foreign_source_do_not_leave(slots: Slots, world: World) -> None:
    guest = await guest_with(slots)
    outside.run("ip", "-n", guest.slot.netns.name, "addr", "add", "198.51.100.77/32", "dev", "eth0")
    assert not await guest.echoes(WEB, source="198.51.100.77")
    assert await guest.echoes(WEB)


async def test_a_guest_cannot_fill_the_neighbour_table_of_the_host(slots: Slots) -> None:
    guest = await guest_with(slots)
    ours, theirs = bytes.fromhex("025a1d000002"), socket.inet_aton(guest.slot.guest_gateway)

    def claim_addresses() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
            wire.bind(("eth0", 0))
            for number in range(400):
                claimed = bytes([11, 0, number >> 8, number & 255])
                request = bytes.fromhex("0001080006040001") + ours + claimed + bytes(6) + theirs
                wire.send(b"\xff" * 6 + ours + b"\x08\x06" + request)

    await guest.do(claim_addresses)
    assert await guest.echoes(WEB)
    listed = subprocess.run(
        ["ip", "-n", Path(router_of(guest)).name, "neigh"], capture_output=True, text=True, check=True
    ).stdout
    assert guest.slot.guest_address in listed and "11.0." not in listed


async def test_ipv6_stays_inside(slots: Slots) -> None:
    guest = await guest_with(slots)

    def addresses() -> list[str]:
        return Path("/proc/thread-self/net/if_inet6").read_text().splitlines()

    assert {line.split()[-1] for line in await guest.do(addresses)} <= {"lo"}
    frame = bytes.fromhex("025a1d000001025a1d00000286dd") + bytes.fromhex("6000000000083a40") + b"\0" * 40

    def send_raw() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
            wire.bind(("eth0", 0))
            wire.send(frame)

    with sniffing(router_of(guest), "up") as seen:
        await guest.do(send_raw)
        assert await guest.echoes(WEB)
        assert not [packet for packet in seen() if struct.unpack_from("!H", packet, 12)[0] == 0x86DD]


def router_of(guest: Guest) -> str:
    return f"/run/netns/{guest.slot.netns.name[:-1]}r"


@contextlib.contextmanager
def sniffing(namespace: str, link: str) -> Iterator[Callable[[], list[bytes]]]:
    def make() -> socket.socket:
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        wire.bind((link, 0))
        wire.setblocking(False)
        return wire

    with outside.inside(namespace, make).result(60) as wire:

        def seen() -> list[bytes]:
            packets = []
            with contextlib.suppress(BlockingIOError):
                while True:
                    packets.append(wire.recv(4096))
            return packets

        yield seen


async def test_the_guest_may_ping_the_world(slots: Slots) -> None:
    guest = await guest_with(slots, NetworkPolicy(deny_out=(OTHER,)))

    def ping(address: str) -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as wire:
            wire.settimeout(0.7)
            with contextlib.suppress(OSError):
                wire.sendto(b"\x08\x00\xf7\xff\x00\x00\x00\x00", (address, 0))
                return wire.recv(100)[0] == 0
        return False

    assert await guest.do(lambda: ping(WEB))
    assert not await guest.do(lambda: ping(OTHER))
