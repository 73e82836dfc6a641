"""The only writer of one kind of record: checks each move, stores it with its events in one transaction, wakes who waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from sandlot.platform.core.errors import Conflict
from sandlot.platform.core.events import Event
from sandlot.platform.core.ports import Aggregate, AggregateStore, Clock
from sandlot.platform.events.log import EventLog

POLL_S = 2.0  # how soon changes by another process are seen


class StatefulAggregate(Aggregate, Protocol):
    @property
    def status(self) -> StrEnum: ...


Stateful = TypeVar("Stateful", bound=StatefulAggregate)
Status = TypeVar("Status", bound=StrEnum)


class AggregateState(Generic[Stateful, Status]):
    """`moves` says which status may follow which."""

    def __init__(
        self,
        *,
        noun: str,
        store: AggregateStore[Stateful],
        events: EventLog,
        clock: Clock,
        moves: Mapping[Status, frozenset[Status]],
    ) -> None:
        self._noun, self._records, self._moves = noun, store, moves
        self.events, self.clock = events, clock
        self._watched: dict[str, asyncio.Event] = {}

    async def add(self, record: Stateful, *events: Event) -> None:
        """Raises `Conflict` if there is one like it already."""
        await self._records.add(record, *events)
        self._changed(record.id, events)

    async def move(self, old: Stateful, to: Status, *events: Event, **changes: Any) -> Stateful:
        """Raises `Conflict` if this move is not allowed, or another request was faster."""
        if to not in self._moves[old.status]:  # type: ignore[index]  # a record has the status of its own kind
            raise Conflict(f"{self._noun} {old.id!r} is {old.status.value}, so it cannot become {to.value}")
        return await self._swap(old, replace(old, status=to, **changes), *events)

    async def change(self, old: Stateful, *events: Event, **changes: Any) -> Stateful:
        """Change what is not the status."""
        return await self._swap(old, replace(old, **changes), *events)

    def watch(self, id: str) -> asyncio.Event:
        """Set at the record's next change. Take it before reading the row: then no change is missed."""
        return self._watched.setdefault(id, asyncio.Event())

    async def changed(self, watch: asyncio.Event, within_s: float) -> None:
        """Wait for a change, but not longer than another process could have made one unnoticed."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(watch.wait(), min(within_s, POLL_S))

    async def _swap(self, old: Stateful, new: Stateful, *events: Event) -> Stateful:
        swapped = await self._records.swap(old, new, *events)
        self._changed(old.id, events)
        return swapped

    def _changed(self, id: str, events: tuple[Event, ...]) -> None:
        if events:
            self.events.changed()
        if watch := self._watched.pop(id, None):
            watch.set()
