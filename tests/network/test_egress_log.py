"""The egress log: what the relays saw, within bounds that a guest cannot stretch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.network.conftest import Open
from tests.network.test_header_rules import CANARY, POLICY, client_with, get
from tests.network.test_reach import guest_with
from tests.network.world import OTHER, WEB, Web, World

from sandlot.engine.core.model import NetworkPolicy
from sandlot.engine.node.egress_reports import EgressReports
from sandlot.engine.node.network import flows as kinds
from sandlot.engine.node.network.flows import Flow, FlowLog
from sandlot.engine.node.network.slots import Slots

BY_NAME = NetworkPolicy(deny_out=("0.0.0.0/0",), allow_out=("www.example.com",))


def reports_of(slots: Slots) -> EgressReports:
    reports = EgressReports(lambda machine_id: f"sandbox of {machine_id}")
    slots.on_flows = reports.note
    return reports


async def gathered(reports: EgressReports, enough: Callable[[list[Any]], bool]) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(30):
        while not enough(found):
            found += reports.take().entries
            await asyncio.sleep(0.1)
    return found


async def test_what_passes_and_what_is_refused_is_told_with_names_rules_bytes_and_secrets(
    open_slots: Open, world: World
) -> None:
    slots = await open_slots(trusted=world.authority)
    reports = reports_of(slots)
    client = await client_with(slots, replace(POLICY, **{"deny_out": ("0.0.0.0/0",), "allow_out": ("*.example.com",)}))
    await client.ask(get())
    with contextlib.suppress(OSError):
        await client._guest.get(OTHER, host="elsewhere.test")
    await client._guest.resolve("secret-data.test")
    found = await gathered(reports, lambda seen: len({entry.host for entry in seen}) >= 3)
    by_host = {entry.host: entry for entry in found}
    opened = by_host["www.example.com"]
    assert (opened.sandbox_id, opened.port, opened.allowed, opened.rule) == (
        "sandbox of i1",
        443,
        True,
        "www.example.com",
    )
    sums = [entry for entry in found if entry.host == "www.example.com"]
    assert sum(entry.connections for entry in sums) == 1 and {name for entry in sums for name in entry.secrets} == {
        "token"
    }
    assert sum(entry.bytes_out for entry in sums) > 50 and sum(entry.bytes_in for entry in sums) > 50
    assert not by_host["elsewhere.test"].allowed and "not allowed" in (by_host["elsewhere.test"].reason or "")
    assert not by_host["secret-data.test"].allowed and by_host["secret-data.test"].port == 53
    assert CANARY not in repr(found)


async def test_what_is_open_is_told_at_its_end_and_with_the_slot(slots: Slots) -> None:
    reports = reports_of(slots)
    guest = await guest_with(slots, BY_NAME)
    await guest.get(WEB, host="www.example.com")
    await slots.release("i1")
    assert sum(entry.connections for entry in reports.take().entries) == 1


async def test_a_server_that_watches_tells_of_open_policies_too(open_slots: Open, world: World) -> None:
    slots = await open_slots(watches=True)
    reports = reports_of(slots)
    guest = await guest_with(slots)
    assert (await guest.get(WEB, host="www.example.com"))["to"] == WEB
    assert (await guest.get_tls(OTHER, "api.example.com"))["to"] == OTHER
    found = await gathered(reports, lambda seen: len({entry.host for entry in seen}) >= 2)
    assert {entry.host for entry in found} == {"www.example.com", "api.example.com"}
    assert all(entry.allowed for entry in found)


def test_many_connections_become_few_rows_and_the_rest_is_counted() -> None:
    log = FlowLog()
    for number in range(10_000):
        log.deny(f"name-{number}.example.com", 443, "no")
        log.end(log.begin(Flow("same.example.com", 443, allowed=True, sent=1)))
    taken = log.take()
    assert taken is not None and len(taken["rows"]) == kinds.MOST_KINDS
    same = next(row for row in taken["rows"] if row[0] == "same.example.com")
    assert same[-3:] == [10_000, 10_000, 0]
    assert taken["left_out"] == 10_000 - (kinds.MOST_KINDS - 1) and log.take() is None


def test_a_connection_is_told_once_and_its_bytes_as_they_come() -> None:
    log = FlowLog()
    flow = log.begin(Flow("a.example", 443, allowed=True, sent=10))
    assert (first := log.take()) and first["rows"][0][-3:] == [1, 10, 0] and log.take() is None
    flow.received += 7
    assert (second := log.take()) and second["rows"][0][-3:] == [0, 0, 7]
    log.end(flow)
    assert (third := log.take()) is None or third["rows"][0][-3:] == [0, 0, 0]


@pytest.fixture(autouse=True)
def forget() -> None:
    Web.seen.clear()
