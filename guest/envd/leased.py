"""Runs the daemon for as long as its lease says: the first process of a sandbox that nobody else ends, as in a Docker container.

The lease is a file with a time (seconds since 1970); whoever owns the sandbox writes a later one. When the time has come, this
process ends, and everything in the sandbox with it. The files stay.
"""

from __future__ import annotations

import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_EVERY_S = 1.0
LONGEST_LEASE = 20


def run() -> None:
    """`LEASE COMMAND...`: until the lease or the command ends."""
    lease, command = sys.argv[1], sys.argv[2:]
    child = os.fork()
    if child == 0:
        os.execv(command[0], command)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    while _runs(child):
        if is_over(lease, time.time):
            sys.exit(0)
        time.sleep(LOOK_EVERY_S)
    sys.exit(1)


def is_over(lease: str, now: Callable[[], float]) -> bool:
    """A lease that cannot be read is no reason to end anything: it may just be written."""
    try:
        with open(lease, encoding="ascii") as file:
            return now() >= float(file.read(LONGEST_LEASE))
    except (OSError, ValueError):
        return False


def _runs(child: int) -> bool:
    """Whether the daemon runs; takes the status of every process that ended, since nobody else does."""
    while True:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if ended == child:
            return False
        if ended == 0:
            return True
