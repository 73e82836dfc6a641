"""A sandbox's own proxy: what it sends by TCP leaves through it, with a login, and nothing leaves beside it."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.network.conftest import Open
from tests.network.test_header_rules import CANARY, POLICY, client_with, get, headers
from tests.network.test_reach import guest_with
from tests.network.world import FAR, LAN, NAME, OTHER, WEB, ZONE, World, inside, make_certificate

from sandlot.engine.core.errors import InvalidRequest
from sandlot.engine.core.model import EgressProxy, NetworkPolicy
from sandlot.engine.node.network.slots import Slots

PORT = 1080


class SocksServer:
    """SOCKS 5 with a login, in the world. `asked` has where it was to connect."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.asked: list[tuple[str, int]] = []
        self._context: ssl.SSLContext | None = None
        if certificate is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(certificate)
        self._listener = inside(f"/run/netns/{NAME}", lambda: socket.create_server((FAR, PORT))).result(10)
        inside(f"/run/netns/{NAME}", lambda: threading.Thread(target=self._accept, daemon=True).start()).result(10)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                wire, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(wire,), daemon=True).start()

    def _serve(self, wire: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError, IndexError), wire:
            wire.settimeout(10)
            near = wire
            if self._context:
                near = self._context.wrap_socket(wire, server_side=True, do_handshake_on_connect=False)
            self._exchange(near)

    def _exchange(self, near: socket.socket) -> None:
        with near:
            exact(near, exact(near, 2)[1])
            near.sendall(b"\x05\x02")
            name = exact(near, exact(near, 2)[1])
            password = exact(near, exact(near, 1)[0])
            near.sendall(b"\x01\x00" if (name, password) == (b"user", b"word") else b"\x01\x01")
            kind = exact(near, 4)[3]
            host = exact(near, exact(near, 1)[0]).decode() if kind == 3 else socket.inet_ntoa(exact(near, 4))
            port = int.from_bytes(exact(near, 2))
            self.asked.append((host, port))
            with socket.create_connection((ZONE[host][0] if host in ZONE else host, port), 5) as far:
                near.sendall(b"\x05\x00\x00\x01" + bytes(6))
                threading.Thread(target=pump, args=(far, near), daemon=True).start()
                pump(near, far)


def exact(wire: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = wire.recv(size - len(data))
        if not part:
            raise OSError("closed")
        data += part
    return data


def pump(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while part := one.recv(65536):
            other.sendall(part)
        other.shutdown(socket.SHUT_WR)


@pytest.fixture
def socks(world: World) -> Iterator[SocksServer]:
    server = SocksServer()
    yield server
    server.close()


PROXY = EgressProxy(host=FAR, port=PORT, username="user", password="word")
THROUGH = NetworkPolicy(egress_proxy=PROXY)


async def test_every_port_leaves_through_the_proxy_by_address(slots: Slots, socks: SocksServer) -> None:
    guest = await guest_with(slots, THROUGH)
    assert (await guest.get(WEB, 80))["to"] == WEB
    assert (await guest.get(OTHER, 8080))["to"] == OTHER
    assert (WEB, 80) in socks.asked and (OTHER, 8080) in socks.asked


async def test_names_that_a_policy_allows_are_looked_up_by_the_proxy(slots: Slots, socks: SocksServer) -> None:
    policy = replace(THROUGH, deny_out=("0.0.0.0/0",), allow_out=("www.example.com",))
    guest = await guest_with(slots, policy)
    assert (await guest.get(WEB, 80, host="www.example.com"))["host"] == "www.example.com"
    with pytest.raises(OSError):
        await guest.get(OTHER, 80, host="api.example.com")
    assert socks.asked == [("www.example.com", 80)]


async def test_rules_count_before_the_proxy(open_slots: Open, world: World, socks: SocksServer) -> None:
    slots = await open_slots(trusted=world.authority)
    client = await client_with(slots, replace(POLICY, egress_proxy=PROXY))
    (answer,) = await client.ask(get())
    assert headers(answer)["authorization"] == f"Bearer {CANARY}" and socks.asked == [(WEB, 443)]


async def test_where_the_proxy_fails_nothing_leaves(slots: Slots, socks: SocksServer) -> None:
    guest = await guest_with(slots, NetworkPolicy(egress_proxy=replace(PROXY, password="wrong")))
    with pytest.raises(OSError):
        await guest.get(WEB)
    await slots.apply("i1", NetworkPolicy(egress_proxy=replace(PROXY, port=1081)))
    with pytest.raises(OSError):
        await guest.get(WEB)
    assert socks.asked == []


async def test_the_proxy_may_be_reached_by_tls_and_its_certificate_is_checked(
    slots: Slots, world: World, tmp_path: Path
) -> None:
    server = SocksServer(make_certificate(tmp_path))
    authority = (tmp_path / "world.pem").read_text().partition("-----END PRIVATE KEY-----\n")[2]
    secured = replace(PROXY, use_tls=True, server_name="www.example.com")
    try:
        guest = await guest_with(slots, NetworkPolicy(egress_proxy=replace(secured, ca_cert=authority)))
        assert (await guest.get(WEB))["to"] == WEB
        for wrong in (secured, replace(secured, server_name="elsewhere.test", ca_cert=authority)):
            await slots.apply("i1", NetworkPolicy(egress_proxy=wrong))
            with pytest.raises(OSError):
                await guest.get(WEB)
        assert server.asked == [(WEB, 80)]
    finally:
        server.close()


@pytest.mark.parametrize("host", ["127.0.0.1", LAN, "nobody.example.com", "198.51.100.1"])
async def test_a_proxy_that_sandboxes_may_not_reach_is_refused(slots: Slots, host: str) -> None:
    with pytest.raises(InvalidRequest, match="egressProxy"):
        await guest_with(slots, NetworkPolicy(egress_proxy=EgressProxy(host=host, port=PORT)))
