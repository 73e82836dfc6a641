"""The sweeper: the loop that ends sandboxes at their deadline and forgets those that ended long ago."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from sandlot.engine.control.lifecycle import Lifecycle
from sandlot.engine.core.ports import Clock

log = logging.getLogger(__name__)

INTERVAL_S = 1.0
PURGE_INTERVAL = timedelta(minutes=10)


async def run_sweeper(
    lifecycle: Lifecycle,
    clock: Clock,
    *,
    keep_ended: timedelta = timedelta(hours=24),
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """End sandboxes at their deadline and forget old ones, for as long as the server runs."""
    next_purge = clock()
    while True:
        try:
            await lifecycle.expire()
            if clock() >= next_purge:
                next_purge = clock() + PURGE_INTERVAL
                await lifecycle.purge(keep_ended)
        except Exception:  # for example a database that is away for a moment: the next pass catches up
            log.exception("the sweeper could not do its work; it tries again")
        await sleep(_until(lifecycle.next_deadline(), clock()))


def _until(deadline: datetime | None, now: datetime) -> float:
    if deadline is None:
        return INTERVAL_S
    return min(max((deadline - now).total_seconds(), 0.02), INTERVAL_S)
