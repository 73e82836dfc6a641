"""Keeps the daemon's recent log in memory, bounded in entries and in size, for the host to fetch."""

from __future__ import annotations

import time
from collections import deque

MAX_ENTRIES = 1000
MAX_TEXT = 2000

_entries: deque[dict[str, object]] = deque(maxlen=MAX_ENTRIES)
_sequence = 0


def log(level: str, message: str, **fields: object) -> None:
    global _sequence
    _sequence += 1
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
    _entries.append(
        {
            "seq": _sequence,
            "timestamp": stamp,
            "level": level,
            "message": _clip(message),
            "fields": {name: _clip(str(value)) for name, value in fields.items()},
        }
    )


def report(what: str, error: BaseException) -> None:
    """Log an error that nobody expected, with the place it came from."""
    place, trace = "", error.__traceback__
    while trace is not None:
        place, trace = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}", trace.tb_next
    log("error", f"{what}: {type(error).__name__}: {error}", place=place)


def after(sequence: int, limit: int = MAX_ENTRIES) -> list[dict[str, object]]:
    """Entries newer than `sequence`, oldest first."""
    return [entry for entry in _entries if int(str(entry["seq"])) > sequence][:limit]


def _clip(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text)} characters)"
