"""What was said between a browser and its clients, as it is shown later: commands with their answers, and the events that tell a story."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from sandlot.platform.core.ports import Clock

MAX_PARSED = 64 << 10  # characters of one message; longer ones are noted without their content
MAX_BODY = 2 << 10
MAX_FILE = 8 << 20
MOST_PENDING = 500
MOST_PAGES = 1000
MOST_SHOWN = 5000
_STORY = (
    "Fetch.",
    "Log.",
    "Network.loadingFailed",
    "Network.requestWillBeSent",
    "Network.responseReceived",
    "Page.",
    "Runtime.consoleAPICalled",
    "Runtime.exceptionThrown",
    "Target.",
    "Browser.download",
)
_NOISE = frozenset(
    {
        "Page.screencastFrame",
        "Network.requestWillBeSentExtraInfo",
        "Network.responseReceivedExtraInfo",
        "Page.lifecycleEvent",
    }
)


class LogBook:
    """One browser's log: lines of JSON in a file that ends where it is full."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file: IO[bytes] = path.open("ab", buffering=64 << 10)
        self._size = self._file.tell()
        self._pending: OrderedDict[tuple[int, int], dict[str, Any]] = OrderedDict()
        self._pages: dict[str, int] = {}

    def asked(self, client: int, text: str) -> None:
        """A client's message."""
        found = _parsed(text)
        if found is None or not isinstance(found.get("id"), int) or not isinstance(found.get("method"), str):
            return
        entry = self._entry(found)
        entry["request"] = {
            "params": _cut(found.get("params")),
            "rawBody": text[:MAX_BODY],
            "timestamp": entry["timestamp"],
        }
        self._pending[client, found["id"]] = entry
        if len(self._pending) > MOST_PENDING:
            self._write(self._pending.popitem(last=False)[1])

    def answered(self, client: int, text: str) -> None:
        """A message to a client: an answer, or an event."""
        found = _parsed(text)
        if found is None:
            return
        entry = self._pending.pop((client, found["id"]), None) if isinstance(found.get("id"), int) else None
        if entry is not None:
            now = _milliseconds(self._clock())
            answer = found.get("result", found.get("error"))
            entry["response"] = {"result": _cut(answer), "rawBody": text[:MAX_BODY], "timestamp": now}
            self._write(entry)
        elif isinstance(method := found.get("method"), str) and method.startswith(_STORY) and method not in _NOISE:
            told = self._entry(found)
            told["request"] = {
                "params": _cut(found.get("params")),
                "rawBody": text[:MAX_BODY],
                "timestamp": told["timestamp"],
            }
            self._write(told)

    def close(self) -> None:
        for entry in self._pending.values():
            self._write(entry)
        self._pending.clear()
        self._file.close()

    def flush(self) -> None:
        self._file.flush()

    def _entry(self, found: Mapping[str, Any]) -> dict[str, Any]:
        params = found.get("params")
        inside = params if isinstance(params, dict) else {}
        named = {name: inside[name][:200] for name in ("frameId", "loaderId") if isinstance(inside.get(name), str)}
        session = found.get("sessionId")
        return {
            "method": str(found["method"])[:200],
            "pageId": self._page(session[:200] if isinstance(session, str) else ""),
            "timestamp": _milliseconds(self._clock()),
            **named,
        }

    def _page(self, session: str) -> int:
        if session not in self._pages and len(self._pages) < MOST_PAGES:
            self._pages[session] = len(self._pages) if session else 0
        return self._pages.get(session, 0)

    def _write(self, entry: Mapping[str, Any]) -> None:
        line = json.dumps(entry).encode() + b"\n"
        if self._size + len(line) <= MAX_FILE:
            self._file.write(line)
            self._size += len(line)


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """Of a log, oldest first."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file):
                if number >= MOST_SHOWN:
                    return
                yield json.loads(line)
    except FileNotFoundError:
        return


def _parsed(text: str) -> dict[str, Any] | None:
    if len(text) > MAX_PARSED:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _cut(value: Any) -> Any:
    """The value itself if it is short; else nothing of it, for a part of JSON is no JSON."""
    if not isinstance(value, dict):
        return {}
    return value if len(json.dumps(value)) <= MAX_BODY else {"omitted": "too long to be kept"}


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)
