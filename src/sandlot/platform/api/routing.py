"""Which requests on a shared port are the platform's: decided by path, for HTTP and WebSockets alike."""

from __future__ import annotations

import re
from collections.abc import Iterable

from starlette.types import Scope

SHARED = "sandboxes"  # the engine has routes below this prefix, too


class Routing:
    """The first segment of a path decides: it belongs to the platform wholly, or to the engine.

    Below `/sandboxes` both have routes. There the platform has its own fixed paths (`/sandboxes/create`) and those with a
    session's id (`sbx_…`), which no sandbox of the engine has.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        """`paths` are those of the routes, with parameters in braces."""
        self._prefixes: set[str] = set()
        self._fixed: set[str] = set()
        self._patterns: list[re.Pattern[str]] = []
        for path in paths:
            prefix = first_segment(path)
            if prefix != SHARED:
                self._prefixes.add(prefix)
            elif "{" in path:
                self._patterns.append(_pattern(path))
            else:
                self._fixed.add(path)

    def matches(self, scope: Scope) -> bool:
        if scope["type"] not in ("http", "websocket"):
            return False
        path: str = scope["path"]
        prefix = first_segment(path)
        if prefix != SHARED:
            return prefix in self._prefixes
        return path in self._fixed or any(pattern.fullmatch(path) for pattern in self._patterns)


def first_segment(path: str) -> str:
    return path.removeprefix("/").partition("/")[0]


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"{[^}]*}", path)
    return re.compile("[^/]+".join(map(re.escape, parts)))
