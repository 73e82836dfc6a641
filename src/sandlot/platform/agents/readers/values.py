"""Values out of what an agent printed, which may be anything: each is of the wanted type and of bounded size, or empty."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sandlot import bounded_json

MOST_TEXT = 60_000  # characters of one text that is kept
MOST_COUNT = 10**12
MOST_PARTS = 1000


def at(value: object, *path: str) -> Any:
    """What is below these names; None where something else is there."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def text_at(value: object, *path: str, most: int = MOST_TEXT) -> str:
    found = at(value, *path)
    return bounded_json.text(found, most) if isinstance(found, str) else ""


def map_at(value: object, *path: str) -> Mapping[str, Any]:
    found = at(value, *path)
    return found if isinstance(found, Mapping) else {}


def list_at(value: object, *path: str) -> Sequence[Any]:
    found = at(value, *path)
    return found[:MOST_PARTS] if isinstance(found, list) else ()


def count_at(value: object, *path: str) -> int:
    found = at(value, *path)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        return 0
    return int(min(max(found, 0), MOST_COUNT))


def code_at(value: object, *path: str) -> int | None:
    """An exit code."""
    found = at(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) and -1000 < found < 1000 else None


def money_at(value: object, *path: str) -> float | None:
    found = at(value, *path)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found) or found < 0:
        return None
    return float(min(found, MOST_COUNT))


def words(value: object, depth: int = 6) -> str:
    """The text in what protocols allow as content: nothing, a string, or parts of a list."""
    if isinstance(value, str):
        return bounded_json.text(value, MOST_TEXT)
    if depth and isinstance(value, list):
        return "\n".join(filter(None, (words(part, depth - 1) for part in value[:MOST_PARTS])))[:MOST_TEXT]
    if depth and isinstance(value, Mapping):
        for name in ("text", "content", "output"):
            if name in value:
                return words(value[name], depth - 1)
    return ""


def tidy(value: object, depth: int = 4, most: int = 4000) -> Any:
    """A value for the timeline: the same, as far as it is small."""
    if isinstance(value, str):
        return bounded_json.text(value if len(value) <= most else value[:most] + " …", most + 2)
    if isinstance(value, Mapping):
        return {bounded_json.text(k, 200): tidy(v, depth - 1) for k, v in list(value.items())[:50]} if depth else "…"
    if isinstance(value, list):
        return [tidy(part, depth - 1) for part in value[:100]] if depth else "…"
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**53:
        return None
    return value
