"""Ends groups of processes to the last one, also where they multiply faster than they are killed."""

from __future__ import annotations

import asyncio
import os
import signal

PAUSE = 0.02
ROUNDS = 500
STOPS = 30


def end(group: int) -> None:
    """Kill all processes of a group, and look again until there are none.

    One signal to a group is enough for Linux; gVisor lets a fork slip through while it goes around, and a fork bomb lives
    on. Its members are stopped before they are killed, then: stopped ones use up the room that the others would fork into.
    """
    if _sent(group, signal.SIGKILL):
        _look_again(group, ROUNDS)


def _look_again(group: int, rounds: int) -> None:
    if rounds:
        asyncio.get_running_loop().call_later(PAUSE, _once_more, group, rounds - 1)


def _once_more(group: int, rounds: int) -> None:
    if not _sent(group, 0):
        return
    for _ in range(STOPS):
        if not _sent(group, signal.SIGSTOP):
            return
    if _sent(group, signal.SIGKILL):
        _look_again(group, rounds)


def _sent(group: int, number: int) -> bool:
    """Whether the group has a member, a dead one that nobody has collected too. Its number is not reused while it has."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True
