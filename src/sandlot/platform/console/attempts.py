"""How often somebody may try to log in: a few times in a row, then at a steady pace, for each address and for all together."""

from __future__ import annotations

import time
from collections.abc import Callable

from sandlot.platform.core.errors import Busy

BURST, PER_S = 10, 0.2  # for one address
BURST_OF_ALL, PER_S_OF_ALL = 100, 5.0
MOST_ADDRESSES = 4096


class LoginAttempts:
    """Counts failures only: who has a valid key is never held up by those who guess from the same address."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._buckets: dict[str, tuple[float, float]] = {}  # when, and how many failures are left

    def check(self, address: str) -> None:
        """Raises `Busy` if there were too many failures."""
        if self._left(address, BURST, PER_S) < 1 or self._left("", BURST_OF_ALL, PER_S_OF_ALL) < 1:
            raise Busy("too many failed attempts to log in; wait a few seconds and try again")

    def failed(self, address: str) -> None:
        if len(self._buckets) >= MOST_ADDRESSES:
            self._buckets = {name: kept for name, kept in self._buckets.items() if name == ""}
        for name, burst, per_s in ((address, BURST, PER_S), ("", BURST_OF_ALL, PER_S_OF_ALL)):
            self._buckets[name] = (self._now(), self._left(name, burst, per_s) - 1)

    def _left(self, name: str, burst: float, per_s: float) -> float:
        at, left = self._buckets.get(name, (self._now(), burst))
        return min(burst, left + (self._now() - at) * per_s)
