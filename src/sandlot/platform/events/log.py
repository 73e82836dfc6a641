"""The event log: followed once per process, read by each reader at its own pace."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from sandlot.platform.core.errors import Unavailable
from sandlot.platform.core.events import Event, EventFilter
from sandlot.platform.core.ports import EventStore

PAGE = 500
TAIL = 2000  # newest events kept in memory: readers that keep up never touch the database
POLL_S = 1.0  # how soon events of another process are seen


class EventLog:
    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._tail: deque[Event] = deque(maxlen=TAIL)
        self._begin = 0  # every event after this one is in the tail
        self._seen = 0
        self._appended = asyncio.Event()
        self._news = asyncio.Event()  # replaced at every change, so that each waiter waits for the next one
        self._closed = False

    async def open(self) -> None:
        self._begin = self._seen = await self._store.last_id()

    async def last_id(self) -> int:
        """The newest event's id."""
        return await self._store.last_id()

    async def forgot(self, cursor: int, user_id: str | None) -> bool:
        """Whether a reader at this place may have missed events that were purged."""
        return await self._store.forgot(cursor, user_id)

    async def append(self, *events: Event) -> None:
        await self._store.append(*events)
        self._appended.set()

    def changed(self) -> None:
        """Another transaction appended events: read them soon."""
        self._appended.set()

    async def purge(self, before: datetime) -> int:
        """Delete old events."""
        return await self._store.purge(before)

    async def run(self) -> None:
        """Follow the table until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._appended.wait(), POLL_S)
            self._appended.clear()
            try:
                await self._follow()
            except Unavailable:
                await asyncio.sleep(POLL_S)  # the readers wait with us

    async def close(self) -> None:
        """End every stream."""
        self._closed = True
        self._tell()

    async def read(
        self, cursor: int | None, chosen: EventFilter, keep_alive_s: float
    ) -> AsyncIterator[Sequence[Event]]:
        """Events after `cursor` (None: from now on) as they come; an empty list when nothing came for a while.

        The reader's place is a number, not a queue: one that stalls costs nothing and holds nobody up.
        """
        last = await self._store.last_id()
        place = last if cursor is None else min(cursor, last)
        while not self._closed:
            news = self._news
            page, place = await self._page(place, chosen)
            if page:
                yield page
            elif place < self._seen:
                continue
            else:
                try:
                    await asyncio.wait_for(news.wait(), keep_alive_s)
                except TimeoutError:
                    yield ()

    async def _page(self, place: int, chosen: EventFilter) -> tuple[Sequence[Event], int]:
        """The next events, and the cursor after them. A cursor at the newest event does not move."""
        seen = self._seen
        if place >= seen:
            return (), place
        if place < self._begin:
            page = await self._store.after(place, PAGE, chosen)
            page = [event for event in page if event.id <= seen]
            return page, page[-1].id if len(page) == PAGE else seen
        fresh = [event for event in self._tail if event.id > place and chosen.matches(event)][:PAGE]
        return fresh, fresh[-1].id if len(fresh) == PAGE else seen

    async def _follow(self) -> None:
        while page := await self._store.after(self._seen, PAGE):
            for event in page:
                if len(self._tail) == TAIL:
                    self._begin = self._tail[0].id
                self._tail.append(event)
            self._seen = page[-1].id
            self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
