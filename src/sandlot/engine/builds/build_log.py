"""The log of one build: collected here, written to the store in pieces, bounded in size."""

from __future__ import annotations

import asyncio

from sandlot.engine.core.model import LogEntry
from sandlot.engine.core.ports import BuildStore, Clock, Output

MOST_LINES = 20_000
MOST_CHARACTERS = 16 << 20
LINE_LIMIT = 8 << 10


class BuildLog:
    def __init__(self, build_id: str, store: BuildStore, clock: Clock, written: int = 0) -> None:
        self._build_id, self._store, self._clock = build_id, store, clock
        self._pending: list[LogEntry] = []
        self._written = written  # lines that are in the store already
        self._characters = 0
        self._lock = asyncio.Lock()

    def add(self, message: str, level: str = "info", step: str = "") -> None:
        count = self._written + len(self._pending)
        if count > MOST_LINES or self._characters > MOST_CHARACTERS:
            return
        if count == MOST_LINES or self._characters + len(message) > MOST_CHARACTERS:
            message, level = "the log of this build is full; further lines are left out", "warn"
            self._characters = MOST_CHARACTERS + 1
        text = message.replace("\0", "")[:LINE_LIMIT].encode("utf-8", "replace").decode()
        self._characters += len(text)
        self._pending.append(
            LogEntry(at=self._clock(), message=text, level=level, fields={"step": step} if step else {})
        )

    def output(self, step: str) -> Output:
        """Takes the lines of one step."""
        return lambda line, level: self.add(line, level, step)

    async def flush(self) -> None:
        async with self._lock:
            entries, self._pending = self._pending, []
            await self._store.log(self._build_id, self._written, entries)
            self._written += len(entries)

    async def flush_regularly(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            await self.flush()
