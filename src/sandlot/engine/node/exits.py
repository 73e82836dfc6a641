"""Machines that ended by themselves, in order: a bounded log that is read with a cursor."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from dataclasses import dataclass

from sandlot.engine.core.model import Exit, MachineExited

KEPT = 1000


@dataclass(frozen=True, slots=True)
class ExitPage:
    """`is_reset`: entries before these may have been missed."""

    cursor: str
    exits: tuple[MachineExited, ...] = ()
    is_reset: bool = False


class ExitLog:
    """A cursor is `epoch:number`. One of another epoch, or of entries that are gone, is told so and goes on from the oldest."""

    def __init__(self) -> None:
        self._epoch = secrets.token_hex(4)
        self._entries: deque[tuple[int, MachineExited]] = deque(maxlen=KEPT)
        self._last = 0
        self._news = asyncio.Event()

    def append(self, sandbox_id: str, exit: Exit) -> None:
        self._last += 1
        self._entries.append((self._last, MachineExited(sandbox_id=sandbox_id, exit=exit)))
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def page(self, cursor: str, wait_s: float) -> ExitPage:
        if not cursor:
            return ExitPage(self._cursor())
        after = self._number(cursor)
        if after == self._last:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), wait_s)
        oldest = self._entries[0][0] if self._entries else self._last + 1
        is_reset = after is None or after + 1 < oldest
        exits = tuple(entry for number, entry in self._entries if after is None or number > after)
        return ExitPage(self._cursor(), exits, is_reset)

    def _cursor(self) -> str:
        return f"{self._epoch}:{self._last}"

    def _number(self, cursor: str) -> int | None:
        epoch, _, number = cursor.partition(":")
        return int(number) if epoch == self._epoch and number.isdigit() else None
