"""Timelines: what happened in a task, stored in its order, and read from any place by as many as want to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace

from sandlot.platform.core.ports import Clock
from sandlot.platform.core.task_ports import TimelineStore
from sandlot.platform.core.tasks import Entry, EntryKind

PAGE = 200
POLL_S = 1.0  # how soon entries of another process are seen
MAX_TEXT, MAX_RAW, MAX_FIELD = 64 << 10, 16 << 10, 32 << 10


class Timeline:
    def __init__(self, store: TimelineStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._news: dict[str, asyncio.Event] = {}
        self._closed = False

    async def add(self, task: str, *entries: Entry, offsets: Mapping[str, int] | None = None) -> None:
        bounded = self.bounded(*entries)
        if bounded or offsets:
            await self._store.append(task, bounded, offsets or {})
        self.changed(task)

    def bounded(self, *entries: Entry) -> Sequence[Entry]:
        """As they are stored: with their time, and not larger than they may be."""
        now = self._clock()
        return [replace(_bounded(entry), at=entry.at or now) for entry in entries]

    def changed(self, task: str) -> None:
        """Readers look again."""
        if news := self._news.pop(task, None):
            news.set()

    async def offset(self, task: str, stream: str) -> int:
        return await self._store.offset(task, stream)

    async def page(
        self, task: str, after: int, limit: int, kinds: Collection[EntryKind] | None = None
    ) -> Sequence[Entry]:
        return await self._store.after(task, after, limit, kinds)

    async def read(self, task: str, after: int, keep_alive_s: float) -> AsyncIterator[Sequence[Entry]]:
        """Entries as they come; an empty list when nothing came for a while."""
        quiet = 0.0
        while not self._closed:
            news = self._news.setdefault(task, asyncio.Event())
            page = await self._store.after(task, after, PAGE)
            if page:
                after, quiet = page[-1].seq, 0.0
                yield page
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), POLL_S)
                quiet = 0.0
                yield ()
                continue
            quiet += POLL_S
            if quiet >= keep_alive_s:
                quiet = 0.0
                yield ()

    async def close(self) -> None:
        """End every stream."""
        self._closed = True
        for task in list(self._news):
            self.changed(task)


def _bounded(entry: Entry) -> Entry:
    raw = entry.raw[:MAX_RAW] if entry.raw is not None else None
    data = {name: _cut(value) for name, value in entry.data.items()}
    return replace(entry, text=entry.text[:MAX_TEXT], raw=raw, data=data)


def _cut(value: object, depth: int = 4) -> object:
    """Values of a guest may be of any size and depth: what is kept of them is not."""
    if isinstance(value, str):
        return value if len(value) <= MAX_FIELD else value[:MAX_FIELD] + " …"
    if isinstance(value, Mapping):
        return {str(k)[:200]: _cut(v, depth - 1) for k, v in list(value.items())[:100]} if depth else "…"
    if isinstance(value, list | tuple):
        return [_cut(v, depth - 1) for v in value[:200]] if depth else "…"
    return value
