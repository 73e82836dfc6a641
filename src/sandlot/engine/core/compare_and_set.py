"""Read, change, write: the loop around a compare-and-set, for every kind of row that has a revision."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from sandlot.engine.core.errors import Conflict, NotFound, WrongState

R = TypeVar("R")

SWAP_TRIES = 20


async def change(
    name: str, get: Callable[[], Awaitable[R | None]], swap: Callable[[R, R], Awaitable[R]], change: Callable[[R], R]
) -> R:
    """The row after the change; again if somebody was quicker. `change` returns its argument to leave the row alone.

    Raises `NotFound` if the row is gone, `WrongState` if `change` or `swap` refuses the move.
    """
    for _ in range(SWAP_TRIES):
        old = await get()
        if old is None:
            raise NotFound(f"{name} was not found")
        new = change(old)
        if new is old:
            return old
        try:
            return await swap(old, new)
        except WrongState:
            raise
        except Conflict:
            continue
    raise Conflict(f"{name} is being changed by others at the same time; try again")
