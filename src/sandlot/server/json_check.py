"""A program that says whether its input is JSON of bounded depth with a bounded number of parts; the exit status is the answer."""

from __future__ import annotations

import json
import os
import resource
import sys

MOST_PARTS = 200_000
MOST_DEPTH = 64
FINE, REFUSED = 0, 1
_MEMORY = 2 << 30
_CPU_S = 20


def is_bounded(value: object) -> bool:
    level, parts = [value], 1
    for _ in range(MOST_DEPTH + 1):
        deeper: list[object] = []
        for each in level:
            if isinstance(each, dict):
                deeper.extend(each.values())
            elif isinstance(each, list):
                deeper.extend(each)
        if not deeper:
            return True
        parts += len(deeper)
        if parts > MOST_PARTS:
            return False
        level = deeper
    return False


def main() -> int:
    os.nice(10)  # the server answers others first
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    try:
        return FINE if is_bounded(json.loads(sys.stdin.buffer.read())) else REFUSED
    except (ValueError, RecursionError, MemoryError):
        return REFUSED


if __name__ == "__main__":
    sys.exit(main())
