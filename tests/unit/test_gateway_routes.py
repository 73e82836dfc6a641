"""Whom a request means."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import a_row

from sandlot.engine.core.errors import InvalidRequest
from sandlot.engine.core.model import ENVD_PORT, Sandbox, State
from sandlot.engine.gateway.routes import (
    Routes,
    Target,
    held_by,
    is_internal,
    parse_target,
    signature,
    signed_by,
)

ID = "i0123456789abcdefghij"
BY_HEADER = {"e2b-sandbox-id": ID, "e2b-sandbox-port": "49983"}


@pytest.mark.parametrize(
    ("host", "domain", "expected"),
    [
        (f"8000-{ID}.sandbox.test", "sandbox.test", Target(8000, ID)),
        (f"8000-{ID}.SANDBOX.test.:443", "sandbox.test:3900", Target(8000, ID)),
        (f"8000-{ID}-clientid.sandbox.test", "sandbox.test", Target(8000, ID)),
        (f"8000-{ID}.localhost:3900", None, Target(8000, ID)),
        (f"8000-{ID}.localhost", "sandbox.test", Target(8000, ID)),
        (f"8000-{ID}.anything.test", None, Target(8000, ID)),
        (f"8000-{ID}.other.test", "sandbox.test", None),
        (f"8000-{ID}.deep.sandbox.test", "sandbox.test", None),
        ("api.sandbox.test", "sandbox.test", None),
        ("sandbox.test", "sandbox.test", None),
        ("10-0-0-5.internal.test", None, None),
        ("127.0.0.1:3900", None, None),
        ("[::1]:3900", None, None),
        ("localhost", None, None),
        ("", None, None),
        (f"8000-{ID}", None, None),
    ],
)
def test_the_host_names_a_sandbox_or_nothing(host: str, domain: str | None, expected: Target | None) -> None:
    assert parse_target(host, {}, domain) == expected


@pytest.mark.parametrize("host", ["localhost:3900", "127.0.0.1", "[::1]:3900", "192.0.2.7", "sandbox.example.test"])
def test_headers_count_where_the_host_cannot_name_a_sandbox(host: str) -> None:
    assert parse_target(host, BY_HEADER, "example.test") == Target(ENVD_PORT, ID)


def test_headers_do_not_count_beside_a_host_that_names_a_sandbox() -> None:
    other = "iothersandbox00000000"
    assert parse_target(f"80-{other}.example.test", BY_HEADER, "example.test") == Target(80, other)
    assert parse_target("www.example.test", BY_HEADER, "example.test") is None


@pytest.mark.parametrize(
    ("sandbox_id", "port"),
    [(ID, ""), ("", "80"), ("I/../x", "80"), (ID, "0"), (ID, "65536"), (ID, "8e1"), (ID, "１２"), ("-" + ID, "80")],
)
def test_half_or_wrong_headers_are_an_error(sandbox_id: str, port: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_target("localhost", {"e2b-sandbox-id": sandbox_id, "e2b-sandbox-port": port}, None)


def test_a_wrong_port_or_id_in_our_own_domain_is_an_error() -> None:
    for host in (f"0-{ID}.example.test", f"99999-{ID}.example.test", "80-Ä.example.test", "80-.example.test"):
        with pytest.raises(InvalidRequest):
            parse_target(host, {}, "example.test")


@given(st.text(max_size=80), st.text(max_size=20), st.text(max_size=10), st.sampled_from([None, "example.test"]))
def test_nothing_a_client_sends_breaks_the_parser(host: str, sandbox_id: str, port: str, domain: str | None) -> None:
    try:
        found = parse_target(host, {"e2b-sandbox-id": sandbox_id, "e2b-sandbox-port": port}, domain)
    except InvalidRequest:
        return
    assert found is None or (0 < found.port < 65536 and found.sandbox_id.isalnum())


@given(st.text(alphabet="/.%2eEfF69nitINI;?\\ ", max_size=20))
def test_no_spelling_breaks_the_check_for_internal_routes(path: str) -> None:
    assert is_internal(ENVD_PORT, path) in (True, False)
    assert not is_internal(80, path)


def test_only_whole_segments_are_internal() -> None:
    assert not is_internal(ENVD_PORT, "/initial") and not is_internal(ENVD_PORT, "/files/init")
    assert not is_internal(ENVD_PORT, "/files?path=/init")
    assert is_internal(ENVD_PORT, "/files/../init") and is_internal(ENVD_PORT, "/%2e%2e//init")


def test_signatures_are_those_of_the_sdk() -> None:
    from e2b.sandbox.signature import get_signature

    made = get_signature("/home/user/ä b", "read", "user", "token", 120)
    assert signature("/home/user/ä b", "read", "user", "token", str(made["expiration"])) == made["signature"]
    made = get_signature("x", "write", None, "token", None)
    assert signature("x", "write", "", "token", None) == made["signature"]


def sandbox(number: int, **changes: object) -> Sandbox:
    return a_row(**{"id": f"i{number:020}", "envd_token": f"token-{number}", **changes})


def test_a_signature_belongs_to_one_sandbox_and_an_unsecured_one_has_none() -> None:
    rows = [sandbox(1), sandbox(2), sandbox(3, envd_token=None)]
    query = {"path": "/x", "signature": signature("/x", "read", "", "token-2", None)}
    found = signed_by(rows, query, "read")
    assert found is rows[1]
    assert signed_by(rows, query, "write") is None
    assert signed_by(rows, {**query, "username": "root"}, "read") is None
    assert signed_by(rows, {"path": "/x", "signature": "v1_ä\udc80"}, "read") is None


def test_a_token_belongs_to_one_sandbox_and_no_token_to_none() -> None:
    rows = [sandbox(1), sandbox(2), sandbox(3, envd_token=None)]
    assert held_by(rows, b"token-2") is rows[1]
    assert held_by(rows, b"token") is None and held_by(rows, b"") is None


class StoredRows:
    def __init__(self, *rows: Sandbox) -> None:
        self.rows = {row.id: row for row in rows}
        self.looks = 0
        self.now = 0.0

    async def find(self, sandbox_id: str) -> Sandbox | None:
        self.looks += 1
        return self.rows.get(sandbox_id)

    async def running(self) -> Sequence[Sandbox]:
        self.looks += 1
        return list(self.rows.values())

    def routes(self) -> Routes:
        return Routes(self.find, self.running, lambda: self.now)


async def test_a_row_is_looked_up_once_and_again_after_a_while() -> None:
    rows = StoredRows(sandbox(1))
    routes = rows.routes()
    for _ in range(3):
        assert await routes.sandbox(sandbox(1).id) is not None
    assert rows.looks == 1
    rows.now += 6
    await routes.sandbox(sandbox(1).id)
    assert rows.looks == 2


async def test_a_change_is_believed_at_once() -> None:
    rows = StoredRows()
    routes = rows.routes()
    assert await routes.sandbox(sandbox(1).id) is None
    routes.changed(sandbox(1))
    assert await routes.sandbox(sandbox(1).id) == sandbox(1)
    rows.rows[sandbox(1).id] = stopped = sandbox(1, state=State.STOPPING)
    routes.changed(stopped)
    assert await routes.sandbox(sandbox(1).id) == stopped


async def test_a_change_during_a_lookup_wins_over_what_was_read() -> None:
    rows = StoredRows(sandbox(1))
    routes = rows.routes()
    gone = sandbox(1, state=State.ENDED)
    find = rows.find

    async def slow(sandbox_id: str) -> Sandbox | None:
        found = await find(sandbox_id)
        routes.changed(gone)
        rows.rows[sandbox_id] = gone
        return found

    routes._find = slow
    await routes.sandbox(sandbox(1).id)
    routes._find = find
    assert await routes.sandbox(sandbox(1).id) == gone


async def test_a_new_sandbox_can_be_found_by_its_signature_at_once() -> None:
    rows = StoredRows(sandbox(1))
    routes = rows.routes()
    query = {"path": "/x", "signature": signature("/x", "read", "", "token-2", None)}
    assert await routes.signer(query, "read") is None
    rows.rows[sandbox(2).id] = sandbox(2)
    routes.changed(sandbox(2))
    assert await routes.signer(query, "read") == sandbox(2)
