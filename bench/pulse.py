"""Runs short commands in one sandbox, one after the other, in a process of its own: what a user notices while others are busy.

Run as `python -m bench.pulse SANDBOX_ID`, with the server's variables in the environment. It says each round trip in
milliseconds on a line, until its standard input is closed.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping

from e2b import Sandbox

PAUSE_S = 0.05


@contextlib.contextmanager
def beating(environment: Mapping[str, str], sandbox_id: str) -> Iterator[list[float]]:
    """While inside, commands run; the list has their times when it is over."""
    times: list[float] = []
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.pulse", sandbox_id],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()  # the first one has connected: from here on it counts
        yield times
    finally:
        said, _ = process.communicate(timeout=120)
        times.extend(float(line) for line in said.split())


def _beat(sandbox_id: str) -> None:
    sandbox = Sandbox.connect(sandbox_id)
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        started = time.perf_counter()
        sandbox.commands.run("true")
        print((time.perf_counter() - started) * 1000, flush=True)


if __name__ == "__main__":
    _beat(sys.argv[1])
