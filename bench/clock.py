"""Times of single actions, and words about what is going on, for people who wait."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable


def timed(action: Callable[[], None]) -> float:
    """How long it took, in milliseconds."""
    started = time.perf_counter()
    action()
    return ms_since(started)


def ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
