"""Free ports of the loopback interface, also when other tests look for some at the same time."""

from __future__ import annotations

import contextlib
import os
import random
import socket

_given: set[int] = set()


def free_port() -> int:
    """A port that nobody listens on. Where tests run side by side, each process has a range (`SANDLOT_TEST_PORTS`) that
    no other process picks from, and that the kernel does not pick from either."""
    chosen = os.environ.get("SANDLOT_TEST_PORTS")
    if not chosen:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])
    first, last = map(int, chosen.split("-"))
    for port in random.sample(range(first, last + 1), last - first + 1):
        if port not in _given and _is_free(port):
            _given.add(port)
            return port
    raise AssertionError(f"no free port in {chosen}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind(("0.0.0.0", port))
        return True
    return False
