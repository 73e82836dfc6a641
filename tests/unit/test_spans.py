"""Where the time of a request went, for callers who ask."""

from __future__ import annotations

import asyncio

from bench import trace as table

from sandlot.server.telemetry import Telemetry, Watched
from sandlot.spans import MOST, Trace, span, tracing


async def test_spans_are_noted_with_what_they_are_inside_of_also_in_tasks_and_threads() -> None:
    trace = Trace()

    async def inner() -> None:
        with span("inner"):
            await asyncio.sleep(0)

    def threaded() -> None:
        with span("thread"):
            pass

    with tracing(trace):
        with span("outer"):
            await asyncio.create_task(inner())
            await asyncio.to_thread(threaded)
        with span("after"):
            pass
    assert [name for name, _ in trace.spans] == ["outer/inner", "outer/thread", "outer", "after"]
    assert all(seconds >= 0 for _, seconds in trace.spans)


def test_nothing_is_noted_when_nobody_asked_and_never_too_much() -> None:
    with span("nobody asked"):
        pass
    trace = Trace()
    with tracing(trace):
        for _ in range(2 * MOST):
            with span("one"):
                pass
    assert len(trace.spans) == MOST


async def _asked(headers: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    sent: list[dict[str, object]] = []

    async def app(scope: object, receive: object, send: object) -> None:
        with span("part"):
            pass
        await send({"type": "http.response.start", "status": 201, "headers": []})  # type: ignore[operator]

    async def send(message: object) -> None:
        sent.append(dict(message))  # type: ignore[call-overload]

    async def receive() -> dict[str, object]:
        return {}

    await Watched(app, Telemetry())({"type": "http", "method": "POST", "headers": headers}, receive, send)
    return dict(sent[0]["headers"])  # type: ignore[call-overload, no-any-return]


async def test_a_caller_who_asks_is_told_and_nobody_else() -> None:
    told = await _asked([(b"x-sandlot-trace", b"1")])
    assert told[b"server-timing"].startswith(b"part;dur=")
    assert b"server-timing" not in await _asked([])


def test_the_table_shows_parts_below_what_they_are_part_of() -> None:
    spans = table.parsed("node.slot;dur=1.50, node;dur=4.00, node.slot;dur=0.50, row;dur=1.00")
    assert spans == {"node.slot": 2.0, "node": 4.0, "row": 1.0}
    shown = table.table({table.TOTAL: [8.0], **{name: [value] for name, value in spans.items()}, table.FIRST: [3.0]})
    assert [line.split() for line in shown.splitlines()][1:] == [
        ["node", "4.0", "50", "%"], ["slot", "2.0", "25", "%"], ["row", "1.0", "12", "%"], ["first", "command", "3.0"],
    ]  # fmt: skip
