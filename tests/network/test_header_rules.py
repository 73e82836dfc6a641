"""Header rules: what a rule names is opened and gets its headers, secrets among them; everything else passes unopened."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.network.conftest import Open
from tests.network.test_reach import guest_with
from tests.network.world import FAR, OTHER, WEB, Guest, World

from sandlot.engine.core.model import HeaderRule, NetworkPolicy
from sandlot.engine.node.network.slots import Slots

CANARY = "canary-1b2c3d"
ALL = "0.0.0.0/0"
TOKEN = HeaderRule(
    domain="www.example.com", headers=(("Authorization", "Bearer ${e2b.secrets.token}"), ("X-Plain", "p"))
)
POLICY = NetworkPolicy(rules=(TOKEN,), secrets={"token": CANARY})


@pytest.fixture
async def opening(open_slots: Open, world: World) -> Slots:
    """Slots whose relays trust the world's certificate."""
    return await open_slots(trusted=world.authority)


class Client:
    """A process of the guest that trusts what its sandbox trusts, with one connection that it may use again."""

    def __init__(self, guest: Guest, authority: str | None) -> None:
        self._guest, self._authority = guest, authority

    @contextlib.contextmanager
    def connection(self, name: str, address: str = WEB) -> Iterator[ssl.SSLSocket]:
        context = ssl.create_default_context(cadata=self._authority)
        if self._authority is None:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection((address, 443), 5) as raw,
            context.wrap_socket(raw, server_hostname=name) as wire,
        ):
            yield wire

    async def ask(self, *requests: bytes, name: str = "www.example.com", address: str = WEB) -> list[tuple[int, bytes]]:
        """Send requests on one connection, one after the other."""

        def act() -> list[tuple[int, bytes]]:
            with self.connection(name, address) as wire:
                return [exchange(wire, request) for request in requests]

        return await self._guest.do(act)

    async def issuer(self, name: str, address: str = WEB) -> str:
        """Who signed the certificate that the guest is shown."""

        def act() -> str:
            with self.connection(name, address) as wire:
                shown = wire.getpeercert(binary_form=True)
            assert shown is not None
            return "opened" if b"Sandlot egress" in shown else "passed"

        return await self._guest.do(act)


def get(path: str = "/", host: str = "www.example.com", *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", f"Host: {host}", *headers, "", ""]).encode()


def exchange(wire: ssl.SSLSocket, request: bytes) -> tuple[int, bytes]:
    wire.sendall(request)
    answer = b""
    while b"\r\n\r\n" not in answer:
        part = wire.recv(65536)
        if not part:
            raise ConnectionError("closed")
        answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    while len(body) < length:
        body += wire.recv(65536)
    return int(head.split()[1]), body


async def client_with(slots: Slots, policy: NetworkPolicy) -> Client:
    guest = await guest_with(slots, policy)
    return Client(guest, slots.authorities(policy))


def headers(answer: tuple[int, bytes]) -> dict[str, str]:
    assert answer[0] == 200, answer
    found: dict[str, Any] = json.loads(answer[1])
    return {name.lower(): value for name, value in found["headers"].items()}


async def test_every_request_gets_the_headers_and_the_callers_own_are_gone(opening: Slots) -> None:
    client = await client_with(opening, POLICY)
    first, second = await client.ask(get(), get("/two", "www.example.com:443", "authorization: mine", "X-Own: kept"))
    assert headers(first)["authorization"] == f"Bearer {CANARY}" and headers(first)["x-plain"] == "p"
    assert headers(second)["authorization"] == f"Bearer {CANARY}" and headers(second)["x-own"] == "kept"
    assert json.loads(second[1])["path"] == "/two" and json.loads(second[1])["tls"] == "www.example.com"


async def test_only_what_a_rule_names_is_opened(opening: Slots) -> None:
    client = await client_with(opening, POLICY)
    assert await client.issuer("www.example.com") == "opened"
    blind = Client(client._guest, None)
    assert await blind.issuer("api.example.com", OTHER) == "passed"
    assert await blind.issuer("example.com") == "passed"
    (answer,) = await blind.ask(get(host="example.com"), name="example.com")
    assert CANARY not in str(answer) and "x-plain" not in headers(answer)
    (answer,) = await blind.ask(get(host="www.example.com"), name="example.com")  # a forged Host goes unopened
    assert CANARY not in str(answer)


async def test_a_server_that_is_dialled_by_another_address_is_still_the_rules_own(opening: Slots) -> None:
    """The guest may resolve the name as it likes: the relay looks it up itself."""
    client = await client_with(opening, POLICY)
    (answer,) = await client.ask(get(), address=OTHER)
    assert json.loads(answer[1])["to"] == WEB


async def test_a_request_for_another_host_on_an_opened_connection_is_refused(opening: Slots) -> None:
    client = await client_with(opening, POLICY)
    ((status, body),) = await client.ask(get(host="example.com"))
    assert status == 400 and b"another host" in body
    with pytest.raises(OSError):
        await client.ask(get(), get(host="example.com"))


async def test_a_secret_does_not_leave_by_plain_http(opening: Slots) -> None:
    guest = await guest_with(opening, POLICY)

    def act() -> bytes:
        with socket.create_connection((WEB, 80), 5) as wire:
            wire.sendall(get())
            answer = b""
            while part := wire.recv(65536):
                answer += part
            return answer

    answer = await guest.do(act)
    assert answer.startswith(b"HTTP/1.1 403") and b"plain HTTP" in answer and CANARY.encode() not in answer
    await opening.apply("i1", NetworkPolicy(rules=(replace(TOKEN, headers=(("X-Plain", "p"),)),)))
    assert (await guest.get(WEB, host="www.example.com"))["headers"]["X-Plain"] == "p"
    assert "X-Plain" not in (await guest.get(WEB, host="example.com"))["headers"]


async def test_a_new_value_counts_for_open_connections_and_a_missing_one_refuses(opening: Slots) -> None:
    client = await client_with(opening, POLICY)
    loop = asyncio.get_running_loop()

    def change(policy: NetworkPolicy) -> None:
        asyncio.run_coroutine_threadsafe(opening.apply("i1", policy), loop).result(10)

    def act() -> list[dict[str, str]]:
        with client.connection("www.example.com") as wire:
            before = headers(exchange(wire, get()))
            change(replace(POLICY, secrets={"token": "changed"}))
            return [before, headers(exchange(wire, get()))]

    before, after = await client._guest.do(act)
    assert before["authorization"] == f"Bearer {CANARY}" and after["authorization"] == "Bearer changed"
    await opening.apply("i1", replace(POLICY, secrets={}))
    ((status, body),) = await client.ask(get())
    assert status == 403 and b"'token'" in body and b"does not exist" in body


async def test_a_rule_allows_nothing_by_itself(opening: Slots) -> None:
    client = await client_with(opening, replace(POLICY, deny_out=(ALL,)))
    with pytest.raises(OSError):
        await client.ask(get())
    await opening.apply("i1", replace(POLICY, deny_out=(ALL,), allow_out=("www.example.com",)))
    (answer,) = await client.ask(get())
    assert headers(answer)["authorization"] == f"Bearer {CANARY}"
    with pytest.raises(OSError):
        await Client(client._guest, None).ask(get(host="example.com"), name="example.com")
    await opening.apply("i1", replace(POLICY, deny_out=(ALL,), allow_out=(WEB,)))
    (answer,) = await client.ask(get())
    assert headers(answer)["authorization"] == f"Bearer {CANARY}"


async def test_bodies_pass_in_both_directions_whole_and_in_chunks(opening: Slots) -> None:
    client = await client_with(opening, POLICY)
    size = 3_000_000
    post = f"POST / HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: {size}\r\n\r\n".encode() + b"y" * size
    (status, body), after = await client.ask(post, get("/after"))
    assert (status, len(body)) == (200, size) and json.loads(after[1])["path"] == "/after"


async def test_a_websocket_passes_once_the_server_agrees(opening: Slots) -> None:
    client = await client_with(opening, POLICY)

    def act() -> bytes:
        with client.connection("www.example.com") as wire:
            wire.sendall(get("/echo", "www.example.com", "Connection: Upgrade", "Upgrade: websocket"))
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += wire.recv(65536)
            wire.sendall(b"hello there\n")
            while part := wire.recv(65536):
                answer += part
            return answer

    answer = await client._guest.do(act)
    assert answer.startswith(b"HTTP/1.1 101") and answer.endswith(b"hello there\n")


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: www.example.com\r\nHost: www.example.com\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: www.example.com\r\n folded: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: www.example.com\r\nX: " + b"y" * 70000 + b"\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
async def test_what_two_servers_could_read_differently_is_refused(opening: Slots, request_: bytes) -> None:
    client = await client_with(opening, POLICY)
    ((status, body),) = await client.ask(request_)
    assert status == 400 and CANARY.encode() not in body


async def test_a_server_whose_certificate_is_not_valid_gets_nothing(slots: Slots, world: World) -> None:
    client = await client_with(slots, POLICY)  # relays that do not trust the world
    ((status, body),) = await client.ask(get())
    assert status == 502 and b"certificate is not valid" in body


async def test_a_name_that_the_certificate_is_not_for_gets_nothing(opening: Slots) -> None:
    rule = replace(TOKEN, domain="elsewhere.test")
    client = await client_with(opening, replace(POLICY, rules=(rule,)))
    ((status, body),) = await client.ask(get(host="elsewhere.test"), name="elsewhere.test", address=OTHER)
    assert status == 502 and b"certificate is not valid" in body


async def test_placeholders_become_secrets_in_headers_and_in_basic_logins(opening: Slots) -> None:
    rule = HeaderRule(domain="*.example.com", headers=(("SECRET_PLACEHOLDER_token", "${e2b.secrets.token}"),))
    client = await client_with(opening, replace(POLICY, rules=(rule,)))
    login = base64.b64encode(b"x-access-token:SECRET_PLACEHOLDER_token").decode()
    wanted = get("/", "www.example.com", "X-Key: a SECRET_PLACEHOLDER_token b", f"Authorization: Basic {login}")
    found = headers((await client.ask(wanted))[0])
    assert found["x-key"] == f"a {CANARY} b" and "secret_placeholder_token" not in found
    assert base64.b64decode(found["authorization"].split()[1]).decode() == f"x-access-token:{CANARY}"
    assert CANARY not in str(await client.ask(get()))
    unbound = Client(client._guest, None)
    (answer,) = await unbound.ask(get("/", "example.com", "X-Key: SECRET_PLACEHOLDER_token"), name="example.com")
    assert headers(answer)["x-key"] == "SECRET_PLACEHOLDER_token"


async def test_connections_that_say_no_name_pass_by_their_address(opening: Slots) -> None:
    guest = await guest_with(opening, POLICY)
    assert (await guest.get_tls(WEB, None))["to"] == WEB
    assert await guest.reaches(FAR, 8080) and await guest.resolve("www.example.com") == (0, [WEB])
    await opening.apply("i1", replace(POLICY, deny_out=(WEB,)))
    with pytest.raises(OSError):
        await guest.get_tls(WEB, None)
    assert (await guest.get_tls(OTHER, "api.example.com"))["to"] == OTHER


async def test_the_host_stays_closed_where_connections_are_opened(opening: Slots) -> None:
    guest = await guest_with(opening, POLICY)
    for address in ("198.51.100.1", "10.199.0.10", "127.0.0.1"):
        with pytest.raises(OSError):
            await guest.get(address)


async def test_rules_hold_when_the_process_of_the_relays_is_replaced(opening: Slots) -> None:
    client = await client_with(opening, POLICY)
    await client.ask(get())
    process = opening.relays._process
    assert process is not None
    await process.end()
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(OSError):
                (answer,) = await client.ask(get())
                break
    assert headers(answer)["authorization"] == f"Bearer {CANARY}"


async def test_the_key_of_the_authority_is_for_root_alone(opening: Slots) -> None:
    await client_with(opening, POLICY)
    place = opening._data_dir / "egress"
    assert (place / "ca.key").stat().st_mode & 0o777 == 0o600 and place.stat().st_mode & 0o777 == 0o700
