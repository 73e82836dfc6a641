"""Names: what the relay at the gateway resolves, and connections that are decided by name."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from ipaddress import IPv4Network

import pytest
from tests.network.conftest import Open
from tests.network.test_reach import NOTHING, OPEN, guest_with
from tests.network.world import DNS, FAR, LAN, OTHER, WEB, Guest, World

from sandlot.engine.core.model import NetworkPolicy
from sandlot.engine.node.network import dnswire
from sandlot.engine.node.network.slots import Slots

NOERROR, SERVFAIL, NXDOMAIN, REFUSED = 0, 2, 3, 5
BY_NAME = NetworkPolicy(deny_out=("0.0.0.0/0",), allow_out=("www.example.com", "*.test", FAR))


async def test_names_are_resolved_over_udp_and_tcp(slots: Slots) -> None:
    guest = await guest_with(slots)
    assert await guest.resolve("www.example.com") == (NOERROR, [WEB])
    assert await guest.resolve("WWW.Example.COM") == (NOERROR, [WEB])
    assert await guest.resolve("api.example.com", tcp=True) == (NOERROR, [OTHER])
    assert await guest.resolve("nobody.example.com") == (NXDOMAIN, [])
    assert await guest.resolve("long.www.example.com") == (NOERROR, [])
    assert await guest.resolve("long.www.example.com", tcp=True) == (NOERROR, [WEB])


async def test_a_sandbox_without_internet_resolves_nothing(slots: Slots, world: World) -> None:
    guest = await guest_with(slots, NOTHING)
    assert await guest.resolve("secret-data.example.com") == (REFUSED, [])
    assert await guest.resolve("secret-data.example.com", tcp=True) == (REFUSED, [])
    assert "secret-data.example.com" not in world.queries


async def test_with_domain_rules_only_these_names_are_resolved(slots: Slots, world: World) -> None:
    guest = await guest_with(slots, BY_NAME)
    assert await guest.resolve("www.example.com") == (NOERROR, [WEB])
    assert await guest.resolve("elsewhere.test") == (NOERROR, [OTHER])
    for name in ("example.com", "leak.www.example.com", "test", "wwwxexample.com"):
        assert await guest.resolve(name) == (REFUSED, []), name
        assert name not in world.queries


async def test_a_policy_can_bring_its_own_resolvers_or_none(slots: Slots) -> None:
    guest = await guest_with(slots, NetworkPolicy(dns_servers=()))
    assert await guest.resolve("www.example.com") == (REFUSED, [])
    await slots.apply("i1", NetworkPolicy(dns_servers=(DNS,)))
    assert await guest.resolve("www.example.com") == (NOERROR, [WEB])


@pytest.mark.parametrize("server", ["127.0.0.1", LAN, "198.51.100.1"])
async def test_a_policys_own_resolver_must_be_one_the_sandbox_may_reach(slots: Slots, server: str) -> None:
    guest = await guest_with(slots, NetworkPolicy(dns_servers=(server,)))
    assert await guest.resolve("www.example.com") == (SERVFAIL, [])


async def test_a_policys_own_resolver_is_not_asked_when_the_policy_denies_it(slots: Slots) -> None:
    guest = await guest_with(slots, NetworkPolicy(dns_servers=(DNS,), deny_out=(DNS,)))
    assert await guest.resolve("www.example.com") == (SERVFAIL, [])


async def test_where_no_resolver_answers_the_failure_is_quick(open_slots: Open, world: World) -> None:
    guest = await guest_with(await open_slots(dns_servers=(WEB,)))  # a host without a resolver on it
    async with asyncio.timeout(3):
        assert await guest.resolve("www.example.com") == (SERVFAIL, [])


async def test_garbage_at_the_relay_gets_no_answer_and_does_no_harm(slots: Slots) -> None:
    guest = await guest_with(slots)

    def throw() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
            for junk in (b"", b"x", b"\0" * 12, b"\xff" * 512, b"\0\1\1\0\0\1\0\0\0\0\0\0\x3fabc", b"\0" * 5000):
                wire.sendto(junk, (guest.slot.guest_gateway, 53))
        with socket.create_connection((guest.slot.guest_gateway, 53), 2) as wire:
            wire.sendall(b"\xff\xff" + b"\xff" * 100)

    await guest.do(throw)
    assert await guest.resolve("www.example.com") == (NOERROR, [WEB])


async def test_a_flood_of_queries_leaves_other_sandboxes_alone(slots: Slots) -> None:
    loud, quiet = await guest_with(slots), await guest_with(slots, machine_id="i2")

    def flood() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
            wire.connect((loud.slot.guest_gateway, 53))
            for number in range(2000):
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    wire.send(dnswire.query(f"n{number}.example.com", number))

    flooding = asyncio.ensure_future(loud.do(flood))
    async with asyncio.timeout(5):
        assert await quiet.resolve("www.example.com") == (NOERROR, [WEB])
    await flooding


async def test_an_allowed_name_is_reachable_over_http_and_tls_and_others_are_not(slots: Slots) -> None:
    guest = await guest_with(slots, BY_NAME)
    answer = await guest.get(WEB, host="www.example.com", path="/x")
    assert (answer["to"], answer["host"], answer["path"]) == (WEB, "www.example.com", "/x")
    assert (await guest.get_tls(WEB, "www.example.com"))["tls"] == "www.example.com"
    assert (await guest.get_tls(OTHER, "elsewhere.test"))["to"] == OTHER
    for name in ("example.com", "api.example.com", "test", None):
        with pytest.raises(OSError):
            await guest.get(OTHER, host=name)
        with pytest.raises(OSError):
            await guest.get_tls(OTHER, name)


async def test_a_claimed_name_leads_to_its_own_address_whatever_was_dialled(slots: Slots) -> None:
    guest = await guest_with(slots, BY_NAME)
    assert (await guest.get_tls(OTHER, "www.example.com"))["to"] == WEB
    assert (await guest.get(LAN, host="www.example.com"))["to"] == WEB


async def test_with_domain_rules_other_ports_and_quic_stay_closed(slots: Slots) -> None:
    guest = await guest_with(slots, BY_NAME)
    assert not await guest.reaches(WEB, 8080) and not await guest.echoes(WEB) and not await guest.echoes(WEB, 443)


async def test_addresses_that_are_allowed_as_such_go_direct(slots: Slots) -> None:
    guest = await guest_with(slots, BY_NAME)
    assert (await guest.get(FAR, host="any.name.at.all"))["to"] == FAR
    assert await guest.reaches(FAR, 8080) and await guest.echoes(FAR)


@pytest.mark.parametrize("name", ["inside.example.com", "host.example.com", "loop.example.com"])
async def test_a_name_that_leads_inside_is_refused(slots: Slots, name: str) -> None:
    guest = await guest_with(slots, NetworkPolicy(allow_internet=False, allow_out=("*.example.com",)))
    with socket.create_server(("0.0.0.0", 443)) as service:
        with pytest.raises(OSError):
            await guest.get_tls(WEB, name)
        service.setblocking(False)
        with pytest.raises(BlockingIOError):
            service.accept()


async def test_a_name_that_leads_to_an_opened_private_range_is_fine(open_slots: Open, world: World) -> None:
    slots = await open_slots(allow_private=(IPv4Network("10.199.0.0/24"),))
    guest = await guest_with(slots, NetworkPolicy(allow_internet=False, allow_out=("*.example.com",)))
    assert (await guest.get_tls(WEB, "inside.example.com"))["to"] == LAN


@pytest.mark.parametrize(
    "header",
    ["Connection: keep-alive", "Connection: Upgrade\r\nUpgrade: h2c", "Connection: Upgrade\r\nUpgrade: websocket"],
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_second_request_on_the_connection_cannot_name_another_host(
    slots: Slots, header: str, at_once: bool
) -> None:
    guest = await guest_with(slots, BY_NAME)
    first = f"GET /one HTTP/1.1\r\nHost: www.example.com\r\n{header}\r\n\r\n".encode()
    second = b"GET /two HTTP/1.1\r\nHost: hidden.example.com\r\nConnection: close\r\n\r\n"

    def two_requests() -> bytes:
        answer = b""
        with socket.create_connection((WEB, 80), 60) as wire, contextlib.suppress(ConnectionError):
            wire.sendall(first + second if at_once else first)
            if not at_once:
                while b"/one" not in answer:
                    answer += wire.recv(65536) or b"/one"
                wire.sendall(second)
            while part := wire.recv(65536):
                answer += part
        return answer

    answer = await guest.do(two_requests)
    assert (b"/one" in answer or at_once) and b"/two" not in answer and b"hidden" not in answer


async def test_a_websocket_that_the_other_side_agrees_to_passes_both_ways(slots: Slots) -> None:
    guest = await guest_with(slots, BY_NAME)

    def talk() -> bytes:
        answer = b""
        with socket.create_connection((WEB, 80), 60) as wire:
            wire.sendall(
                b"GET /echo HTTP/1.1\r\nHost: www.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello\n"
            )
            while part := wire.recv(65536):
                answer += part
        return answer

    answer = await guest.do(talk)
    assert b" 101 " in answer and answer.endswith(b"hello\n")


@pytest.mark.parametrize(
    "request_head",
    [
        b"GET http://api.example.com/ HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
        b"GET http://www.example.com:x@api.example.com/ HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: www.example.com\r\nHost: api.example.com\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: 1\r\n Host: api.example.com\r\nHost: www.example.com\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: www.example.com\r\nHost : api.example.com\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: www.example.com\r\nX: 1\nHost: api.example.com\r\n\r\n",
        b"CONNECT www.example.com:443 HTTP/1.1\r\nHost: www.example.com\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x16\x03\x01\xff\xff" + b"\0" * 100,
        b"\0" * 40000,
    ],
)
async def test_what_names_nobody_clearly_is_refused(slots: Slots, request_head: bytes) -> None:
    guest = await guest_with(slots, BY_NAME)

    def talk() -> bytes:
        with socket.create_connection((WEB, 80), 3) as wire, contextlib.suppress(ConnectionError):
            wire.sendall(request_head)
            wire.shutdown(socket.SHUT_WR)
            return wire.recv(100)
        return b""

    assert await guest.do(talk) == b""


async def test_bodies_pass_whole_and_slow_readers_hold_nothing_but_themselves_up(slots: Slots) -> None:
    guest = await guest_with(slots, BY_NAME)
    size = 3_000_000

    def post() -> int:
        with socket.create_connection((WEB, 80), 5) as wire:
            wire.sendall(f"POST / HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: {size}\r\n\r\n".encode())
            wire.sendall(b"y" * size)
            wire.shutdown(socket.SHUT_WR)
            got = b""
            while part := wire.recv(65536):
                got += part
        return len(got.partition(b"\r\n\r\n")[2])

    assert await guest.do(post) == size


async def test_a_client_that_sends_its_hello_byte_by_byte_is_served(slots: Slots) -> None:
    guest = await guest_with(slots, BY_NAME)

    def drip() -> bytes:
        with socket.create_connection((WEB, 80), 5) as wire:
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in b"GET / HTTP/1.1\r\nHost: www.example.com\r\n\r\n":
                wire.send(bytes([byte]))
            return wire.recv(4096)

    assert (await guest.do(drip)).startswith(b"HTTP/1.1 200")


async def test_a_new_policy_ends_relayed_connections_it_does_not_allow(slots: Slots) -> None:
    guest = await guest_with(slots, BY_NAME)

    def begin() -> socket.socket:
        wire = socket.create_connection((WEB, 80), 5)
        wire.sendall(b"POST / HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: 4\r\n\r\nab")
        return wire

    with await guest.do(begin) as wire:
        await asyncio.sleep(0.3)  # the relay connects
        await slots.apply("i1", NetworkPolicy(deny_out=("0.0.0.0/0",), allow_out=("elsewhere.test",)))

        def go_on() -> bytes:
            with contextlib.suppress(ConnectionError):
                wire.sendall(b"cd")
                return wire.recv(100)
            return b""

        assert await asyncio.to_thread(go_on) == b""
    await slots.apply("i1", OPEN)
    assert (await guest.get(OTHER, host="whoever"))["to"] == OTHER


async def test_guests_cannot_use_the_egress_relay_directly(slots: Slots) -> None:
    guest: Guest = await guest_with(slots, BY_NAME)
    assert not await guest.reaches(guest.slot.guest_gateway, 15080)
