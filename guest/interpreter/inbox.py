"""What a kernel sent and nobody has taken yet: kept in order, and kept small by making the kernel wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from interpreter.outputs import Message

HIGH_WATER = 8 << 20
LOW_WATER = 1 << 20


class Inbox:
    """Not bounded by refusing (a publisher would drop what is refused) but by holding the kernel still."""

    def __init__(self, hold: Callable[[], None], release: Callable[[], None]) -> None:
        self._hold = hold
        self._release = release
        self._messages: deque[tuple[Message, int]] = deque()
        self._size = 0
        self._held = False
        self._closed: Exception | None = None
        self._news = asyncio.Event()

    def put(self, message: Message, size: int) -> None:
        self._messages.append((message, size))
        self._size += size
        self._news.set()
        if self._size > HIGH_WATER and not self._held:
            self._held = True
            self._hold()

    def close(self, reason: Exception) -> None:
        """What has arrived can still be taken; then `get` raises."""
        if self._closed is None:
            self._closed = reason
        self._news.set()

    def clear(self) -> None:
        """Nobody waits for these any more."""
        self._messages.clear()
        self._size = 0
        self._let_go()

    async def get(self) -> Message:
        while not self._messages:
            if self._closed is not None:
                raise self._closed
            self._news.clear()
            await self._news.wait()
        message, size = self._messages.popleft()
        self._size -= size
        self._let_go()
        return message

    def _let_go(self) -> None:
        if self._held and self._size < LOW_WATER:
            self._held = False
            self._release()
