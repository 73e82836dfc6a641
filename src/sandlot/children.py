"""Children of this process that somebody waits for: the reaper of orphans leaves these alone, whichever part started them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

OWN: set[int] = set()  # pids whose status somebody will ask for
_spawning = 0  # children exist whose pid is not in `OWN` yet: the reaper must not look now


def spawn(argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a child and note it, with the reaper held off in between: it would take the child's status."""
    global _spawning
    _spawning += 1
    try:
        child = subprocess.Popen(argv, **options)
        OWN.add(child.pid)
        return child
    finally:
        _spawning -= 1


def is_spawning() -> bool:
    return _spawning > 0


def release(child: subprocess.Popen[bytes]) -> None:
    """Its status is known, or nobody wants it."""
    OWN.discard(child.pid)
