"""Reads lines of JSON from an agent: within limits, and never failing. What they mean is a dialect's matter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from sandlot import bounded_json
from sandlot.platform.agents.readers.notes import TurnNotes
from sandlot.platform.agents.readers.values import count_at, map_at, money_at, text_at
from sandlot.platform.agents.reading import TurnEnd
from sandlot.platform.agents.turns import HEADER
from sandlot.platform.core.tasks import Entry, EntryKind, TokenUsage

MOST_LINE = 1 << 20  # bytes
MOST_DEPTH = 40
MOST_STRAY = 2000  # characters of a line that is no event
MOST_RAW = 16_000


class Dialect(Protocol):
    """What one agent's events mean."""

    says_so: bool  # it tells when it is done

    def read(self, event: Mapping[str, Any]) -> Iterable[Entry]: ...


class EventLines:
    """A stream reader for agents that print one JSON object in a line."""

    def __init__(self, dialect: Dialect, notes: TurnNotes) -> None:
        self._dialect, self._notes = dialect, notes
        self._first = True

    def feed(self, line: str) -> Sequence[Entry]:
        first, self._first = self._first, False
        if not line.strip():
            return ()
        event = parsed(line)
        if event is None:
            return (stray(line),)
        if first and event.get("type") == HEADER:
            open_turn(self._notes, event)
            return ()
        entries = list(self._dialect.read(event))
        if entries:
            entries[0] = replace(entries[0], raw=bounded_json.text(line, MOST_RAW))
        return tuple(entries)

    def end(self, exit_code: int | None, errors: str) -> TurnEnd:
        return self._notes.end(exit_code, errors, says_so=self._dialect.says_so)

    @property
    def usage(self) -> TokenUsage:
        return self._notes.usage

    @property
    def agent_session(self) -> str | None:
        return self._notes.session


def parsed(line: str) -> Mapping[str, Any] | None:
    """The object in this line; None if there is none, or none that we would read."""
    if line.lstrip()[:1] != "{":
        return None
    try:
        event = bounded_json.loads(line.encode(errors="replace"), most_bytes=MOST_LINE, most_depth=MOST_DEPTH)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def stray(line: str) -> Entry:
    """A line that is no event: a warning of the program, or more than we read."""
    text = bounded_json.text(line if len(line) <= MOST_STRAY else line[:MOST_STRAY] + " …", MOST_STRAY + 2)
    return Entry(kind=EntryKind.MESSAGE, text=text, data={"stray": True})


def open_turn(notes: TurnNotes, event: Mapping[str, Any]) -> None:
    """What the turn's script wrote before the agent began."""
    notes.directory = text_at(event, "directory", most=4096)
    notes.session = text_at(event, "session", most=200) or None
    notes.model = text_at(event, "model", most=200) or None
    spent = map_at(event, "spent")
    notes.spent = TokenUsage(
        input=count_at(spent, "input"),
        output=count_at(spent, "output"),
        cached=count_at(spent, "cached"),
        cost_usd=money_at(spent, "cost_usd"),
    )
