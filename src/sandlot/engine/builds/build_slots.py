"""Slots for builds, shared fairly: whoever has fewest running is next."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairSlots:
    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._running: Counter[str] = Counter()
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []  # in the order of their coming

    def locked(self) -> bool:
        return self._free <= 0

    @asynccontextmanager
    async def of(self, team_id: str) -> AsyncIterator[None]:
        await self._acquire(team_id)
        try:
            yield
        finally:
            self._release(team_id)

    async def _acquire(self, team_id: str) -> None:
        if not self.locked() and not self._waiting:
            self._take(team_id)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (team_id, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
            elif not turn.cancelled():  # it was given the slot at the same moment
                self._release(team_id)
            raise

    def _take(self, team_id: str) -> None:
        self._free -= 1
        self._running[team_id] += 1

    def _release(self, team_id: str) -> None:
        self._free += 1
        self._running[team_id] -= 1
        while self._waiting and not self.locked():
            chosen = min(self._waiting, key=lambda entry: self._running[entry[0]])  # the first of equals came first
            self._waiting.remove(chosen)
            if not chosen[1].done():
                self._take(chosen[0])
                chosen[1].set_result(None)
