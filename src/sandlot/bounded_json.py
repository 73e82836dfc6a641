"""JSON from somebody who may be hostile: read within limits, or refused with a `ValueError` and nothing else."""

from __future__ import annotations

import json
import re
from typing import Any

MOST_DEPTH = 64
MOST_CONTAINERS = 50_000  # objects and arrays
# Possessive, and with an end for strings that have none: one look at each byte, whatever the text is.
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")


def loads(data: bytes, *, most_bytes: int, most_depth: int = MOST_DEPTH, most_containers: int = MOST_CONTAINERS) -> Any:
    """The value. Raises `ValueError` if it is too large or too deep, or no JSON."""
    if len(data) > most_bytes:
        raise ValueError(f"more than {most_bytes} bytes of JSON")
    bare = _STRING.sub(b"", data)
    if bare.count(b"[") + bare.count(b"{") > most_containers:
        raise ValueError(f"JSON with more than {most_containers} objects and arrays")
    depth = 0
    for bracket in _BRACKET.finditer(bare):
        depth += 1 if bracket[0] in b"[{" else -1
        if depth > most_depth:
            raise ValueError(f"JSON nested deeper than {most_depth}")
    try:
        return json.loads(data)
    except RecursionError as error:  # text that is no JSON may hide brackets from the count
        raise ValueError("JSON nested too deep") from error


def text(value: object, most: int) -> str:
    """A value as text of bounded length that every encoder takes: JSON can spell characters that UTF-8 cannot."""
    return str(value)[:most].encode("utf-8", "replace").decode()
