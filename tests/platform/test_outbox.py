"""The log of events, changes of state and deliveries of webhooks by themselves, on stores in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from tests.platform.test_queue import waiting
from tests.platform.world import until

from sandlot.platform.core.errors import Conflict, Unavailable
from sandlot.platform.core.events import SANDBOX, Event, EventFilter, SandboxEventType, Subject
from sandlot.platform.core.model import MOVES, Delivery, Session, SessionStatus, Webhook
from sandlot.platform.core.ports import EVERYTHING, SessionStore
from sandlot.platform.events import log as event_log
from sandlot.platform.events.log import EventLog
from sandlot.platform.events.webhooks import MAX_ATTEMPTS, WebhookDeliverer
from sandlot.platform.sessions.state import SessionState

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def event(number: int) -> Event:
    user = "ada" if number % 3 else "bob"
    return Event(type="created", at=NOW, user_id=user, subject=Subject(SANDBOX, f"sbx_{number}"), id=number)


class Events:
    """A table of events, which counts how often it is read for a reader from the beginning."""

    def __init__(self) -> None:
        self.rows: list[Event] = []
        self.reads = 0

    async def append(self, *events: Event) -> None:
        self.rows += [replace(each, id=len(self.rows) + number) for number, each in enumerate(events, start=1)]

    async def last_id(self) -> int:
        return len(self.rows)

    async def after(self, cursor: int, limit: int, chosen: EventFilter = EVERYTHING) -> Sequence[Event]:
        self.reads += 1
        return [each for each in self.rows[cursor:] if chosen.matches(each)][:limit]

    async def purge(self, before: datetime) -> int:
        return 0


@pytest.mark.parametrize("tail", [8, 1000], ids=["from the table and then from memory", "from memory"])
@pytest.mark.parametrize("chosen", [EVERYTHING, EventFilter(user_id="ada"), EventFilter(user_id="bob")])
async def test_every_reader_gets_every_chosen_event_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch, tail: int, chosen: EventFilter
) -> None:
    monkeypatch.setattr(event_log, "PAGE", 5)
    monkeypatch.setattr(event_log, "TAIL", tail)
    table = Events()
    log = EventLog(table)
    await log.open()
    following = asyncio.create_task(log.run())
    try:
        await log.append(*[event(number) for number in range(1, 41)])
        expected = [each.id for each in table.rows if chosen.matches(each)]
        for start in (0, 3, 31, 36):
            seen: list[int] = []
            reader = log.read(start, chosen, 3600)
            async with asyncio.timeout(60):
                while len(seen) < len([id for id in expected if id > start]):
                    page = await anext(reader)
                    assert 0 < len(page) <= 5
                    seen += [each.id for each in page]
            await cast(Any, reader).aclose()
            assert seen == [id for id in expected if id > start]
    finally:
        following.cancel()


async def test_who_keeps_up_never_reads_the_table() -> None:
    table = Events()
    log = EventLog(table)
    await log.open()
    await table.append(*[event(number) for number in range(1, 11)])
    await log._follow()
    before = table.reads
    assert [each.id for each in await anext(log.read(0, EVERYTHING, 3600))] == list(range(1, 11))
    assert table.reads == before


# -- changes of state ------------------------------------------------------------------------------------------------


class Rows:
    """Rows of sessions: keeps what is swapped."""

    def __init__(self) -> None:
        self.kept: list[tuple[Session, tuple[Event, ...]]] = []

    async def add(self, session: Session, *events: Event) -> None:
        self.kept.append((session, events))

    async def swap(self, old: Session, new: Session, *events: Event) -> Session:
        self.kept.append((new, events))
        return new


class CountedLog(EventLog):
    def __init__(self) -> None:
        super().__init__(Events())
        self.changes = 0

    def changed(self) -> None:
        self.changes += 1


def a_state() -> tuple[SessionState, Rows, CountedLog]:
    rows, log = Rows(), CountedLog()
    return SessionState(store=cast(SessionStore, rows), events=log, clock=lambda: NOW), rows, log


async def test_readers_and_waiters_are_told_of_a_change_at_once() -> None:
    state, rows, log = a_state()
    session = waiting("ada", 1)
    watch, other = state.watch(session.id), state.watch("another")
    session = await state.move(session, SessionStatus.STARTING)
    assert watch.is_set() and not other.is_set() and log.changes == 0, "there was no event to be read"
    watch = state.watch(session.id)
    assert not watch.is_set()
    ready = state.event(session, SandboxEventType.READY)
    session = await state.move(session, SessionStatus.RUNNING, ready)
    assert watch.is_set() and log.changes == 1 and rows.kept[-1] == (session, (ready,))


@pytest.mark.parametrize("old", list(SessionStatus))
async def test_a_session_moves_only_as_its_table_says(old: SessionStatus) -> None:
    for new in SessionStatus:
        state, rows, log = a_state()
        session = replace(waiting("ada", 1, old), envs={"A": "b"})
        if new in MOVES[old]:
            assert (await state.move(session, new)).status is new
            continue
        with pytest.raises(Conflict, match=f"is {old.value}, so it cannot become {new.value}"):
            await state.move(session, new, state.event(session, SandboxEventType.READY))
        assert not rows.kept and not log.changes


async def test_events_leave_out_what_is_not_known() -> None:
    state, _, _ = a_state()
    made = state.event(waiting("ada", 1), SandboxEventType.DELETED, reason=None, code=0, text="")
    assert (made.data, made.at, made.user_id, made.session_id) == ({"code": 0, "text": ""}, NOW, "ada", "1")


# -- webhooks --------------------------------------------------------------------------------------------------------


class Outbox:
    def __init__(self, *attempts: int) -> None:
        self.pending = [
            Delivery(id=number, webhook="ci", event=event(number), attempts=count, next_at=NOW)
            for number, count in enumerate(attempts, start=1)
        ]
        self.notes: list[tuple[Any, ...]] = []

    async def due(self, now: datetime, limit: int) -> Sequence[Delivery]:
        return self.pending

    async def delivered(self, delivery: int) -> None:
        self.notes.append(("delivered", delivery))

    async def postpone(self, delivery: int, until: datetime, problem: str) -> None:
        self.notes.append(("postponed", delivery, until - NOW, problem))

    async def give_up(self, delivery: int, problem: str) -> None:
        self.notes.append(("given up", delivery, problem))


class Receiver:
    def __init__(self) -> None:
        self.asked = 0
        self.answer: Callable[[], None] = lambda: None
        self.go = asyncio.Event()
        self.go.set()

    async def send(self, webhook: Webhook, body: bytes, headers: Mapping[str, str]) -> None:
        self.asked += 1
        await self.go.wait()
        self.answer()


def refuse() -> None:
    raise Unavailable("the webhook answered 500")


def deliverer(outbox: Outbox, receiver: Receiver) -> WebhookDeliverer:
    webhooks = [Webhook(name="ci", url="http://x", secret="hush")]
    return WebhookDeliverer(store=outbox, transport=receiver, webhooks=webhooks, clock=lambda: NOW)


async def noted(outbox: Outbox, count: int) -> list[tuple[Any, ...]]:
    await until(lambda: len(outbox.notes) >= count, what="the notes")
    return sorted(outbox.notes, key=lambda note: note[1])


async def test_what_is_refused_is_tried_again_later_and_later_and_given_up_in_the_end() -> None:
    outbox, receiver = Outbox(0, 1, 3, MAX_ATTEMPTS - 2, MAX_ATTEMPTS - 1), Receiver()
    receiver.answer = refuse
    await deliverer(outbox, receiver).deliver_due()
    *postponed, last = await noted(outbox, 5)
    assert [(kind, id, problem) for kind, id, _, problem in postponed] == [
        ("postponed", id, "the webhook answered 500") for id in (1, 2, 3, 4)
    ]
    for (_, _, wait, _), longest_s in zip(postponed, (1, 3, 27, 7200), strict=True):
        assert timedelta(seconds=longest_s * 0.8) <= wait <= timedelta(seconds=longest_s)
    assert last == ("given up", 5, "the webhook answered 500")


async def test_what_is_taken_is_done_and_what_has_no_receiver_any_more_is_given_up() -> None:
    outbox, receiver = Outbox(0, 0), Receiver()
    outbox.pending[1] = replace(outbox.pending[1], webhook="removed")
    await deliverer(outbox, receiver).deliver_due()
    problem = "no such webhook in the configuration any more"
    assert await noted(outbox, 2) == [("delivered", 1), ("given up", 2, problem)]


async def test_one_that_is_under_way_is_not_sent_twice_and_ends_with_the_deliverer() -> None:
    outbox, receiver = Outbox(0), Receiver()
    receiver.go.clear()
    made = deliverer(outbox, receiver)
    await made.deliver_due()
    await until(lambda: receiver.asked > 0, what="the attempt")
    await made.deliver_due()
    await asyncio.wait_for(made.close(), 60)
    receiver.go.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert receiver.asked == 1 and not outbox.notes
