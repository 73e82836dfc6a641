"""Guests that talk to the relays: costly greetings and floods. `tests/network/test_relay_process.py` has the rest."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandlot.engine.node.network.accepting import Budget
from sandlot.engine.node.network.greeting import MAX_RECORDS, GreetingReader, Unreadable

NAME = b"www.example.com"
SERVER_NAME = b"\0" + len(NAME).to_bytes(2) + NAME
EXTENSION = b"\0\0" + (len(SERVER_NAME) + 2).to_bytes(2) + len(SERVER_NAME).to_bytes(2) + SERVER_NAME
BODY = b"\3\3" + b"r" * 32 + b"\0" + b"\0\2\x13\1" + b"\1\0" + len(EXTENSION).to_bytes(2) + EXTENSION
HELLO = b"\1" + len(BODY).to_bytes(3) + BODY
HTTP = b"GET / HTTP/1.1\r\nHost: www.example.com\r\n\r\n"


def records(sizes: list[int]) -> bytes:
    """The hello, spread over records."""
    out, left = b"", HELLO
    for size in sizes:
        part, left = left[:size], left[size:]
        if part:
            out += b"\x16\3\1" + len(part).to_bytes(2) + part
    return out + (b"\x16\3\1" + len(left).to_bytes(2) + left if left else b"")


@given(st.lists(st.integers(1, 20), max_size=20), st.lists(st.integers(1, 30), min_size=1), st.booleans())
def test_a_greeting_means_the_same_in_whatever_parts_it_comes(
    records_of: list[int], parts: list[int], is_tls: bool
) -> None:
    data = records(records_of) if is_tls else HTTP
    reader, position, turn = GreetingReader(), 0, 0
    while True:
        size = parts[turn % len(parts)]
        greeted = reader.feed(data[position : position + size])
        position, turn = position + size, turn + 1
        if greeted is not None:
            break
    assert greeted.name == "www.example.com" and position >= len(data)
    if is_tls:
        assert greeted.forward == data


def test_a_hello_that_is_spread_over_very_many_records_is_refused() -> None:
    assert len(HELLO) > MAX_RECORDS
    reader = GreetingReader()
    with pytest.raises(Unreadable):
        for byte in records([1] * len(HELLO)):
            reader.feed(bytes([byte]))


async def test_whoever_has_most_makes_room_for_whoever_has_less() -> None:
    budget = Budget(10)
    loud, other, quiet = budget.share(100), budget.share(100), budget.share(100)
    forever = asyncio.Event()

    async def work() -> None:
        await forever.wait()

    for share, wanted in ((loud, 50), (other, 4), (quiet, 3)):
        for _ in range(wanted):
            if share.has_room():
                share.run(work())
    # At the end two have the same, and either makes room.
    assert len(quiet.tasks) == 3 and sorted((len(loud.tasks), len(other.tasks))) == [3, 4]
    kept = len(loud.tasks)
    assert not loud.has_room() and not other.has_room()
    await loud.close()
    assert budget.left == kept and other.has_room()
    for share in (other, quiet):
        await share.close()
    assert budget.left == 10
