"""Helpers for tests of streams: a turn's lines as the entries that they become."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sandlot.platform.agents.reading import TurnEnd
from sandlot.platform.agents.streams import stream_reader
from sandlot.platform.core.tasks import Entry, EntryKind


@dataclass(frozen=True)
class Read:
    entries: Sequence[Entry]
    end: TurnEnd

    def of(self, kind: EntryKind) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind is kind]

    @property
    def kinds(self) -> list[str]:
        return [entry.kind.value for entry in self.entries]


def read(output: str, lines: Iterable[str], exit_code: int | None = 0, errors: str = "") -> Read:
    """All of them, the end included."""
    reader = stream_reader(output)
    entries = [entry for line in lines for entry in reader.feed(line)]
    end = reader.end(exit_code, errors)
    assert reader.usage == end.usage and reader.agent_session == end.agent_session
    return Read((*entries, *end.entries), end)
