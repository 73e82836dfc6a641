"""The heap of the server's process: one for all threads, and what its start needed only once is given back."""

from __future__ import annotations

import ctypes
import gc

_M_ARENA_MAX = -8  # of glibc's mallopt; other C libraries have one heap anyway


def share() -> None:
    """Have all threads use one heap, before there are threads: each one of its own keeps megabytes that nobody uses."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Return what is free to the system. What is left lives as long as the server: the collector need not look at it again."""
    gc.collect()
    gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
