"""Runs long file operations beside the event loop, and knows whether any is running."""

from __future__ import annotations

import asyncio

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

_active = 0


def are_active() -> bool:
    """While threads work as root, this process must not change its user, not even for a moment."""
    return _active > 0


async def in_thread(work: Callable[[], T]) -> T:
    global _active

    def counted() -> T:
        global _active
        try:
            return work()
        finally:
            _active -= 1

    _active += 1
    return await asyncio.get_running_loop().run_in_executor(None, counted)
