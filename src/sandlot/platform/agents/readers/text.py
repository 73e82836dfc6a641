"""Reads what any program prints: one command, whose output comes in pieces."""

from __future__ import annotations

from collections.abc import Sequence

from sandlot import bounded_json
from sandlot.platform.agents.readers.lines import open_turn, parsed
from sandlot.platform.agents.readers.notes import MOST_OUTPUT, TurnNotes
from sandlot.platform.agents.readers.values import text_at
from sandlot.platform.agents.reading import TurnEnd
from sandlot.platform.agents.turns import HEADER
from sandlot.platform.core.tasks import Entry, EntryKind, TokenUsage

ID = "command"
MOST_LINE = 4000
# Up to so many lines, one entry has so many of them: what is short is told at once, what is long does not fill the timeline.
PIECES = ((200, 1), (2000, 20), (20_000, 200))
LARGEST_PIECE = 2000


class TextLines:
    def __init__(self, notes: TurnNotes) -> None:
        self._notes = notes
        self._command = "the command"
        self._lines = 0
        self._piece: list[str] = []
        self._piece_size = 0
        self._kept = ""
        self._first = True

    def feed(self, line: str) -> Sequence[Entry]:
        if self._first:
            self._first = False
            event = parsed(line)
            if event is not None and event.get("type") == HEADER:
                open_turn(self._notes, event)
                self._command = text_at(event, "command") or self._command
                return tuple(self._notes.begin(ID, ID, {}, self._command))
            return (*self._notes.begin(ID, ID, {}, self._command), *self._add(line))
        return self._add(line)

    def end(self, exit_code: int | None, errors: str) -> TurnEnd:
        pieces = self._flush() if self._piece else ()
        call = self._notes.take(ID) if exit_code is not None else None
        finished: Sequence[Entry] = ()
        output = self._kept + bounded_json.text(errors[-MOST_OUTPUT:], MOST_OUTPUT)
        if call is not None and exit_code is not None:
            finished = tuple(self._notes.finish(call, output, ok=exit_code == 0, exit_code=exit_code))
        if exit_code == 0:
            self._notes.result = output[-4000:].strip() or "The command ended with exit code 0."
        end = self._notes.end(exit_code, "" if exit_code is None else output, says_so=False)
        entries = (*pieces, *finished, *end.entries)
        return TurnEnd(
            entries=entries,
            agent_session=None,
            usage=end.usage,
            result=end.result,
            problem=end.problem,
            question=end.question,
        )

    @property
    def usage(self) -> TokenUsage:
        return self._notes.usage

    @property
    def agent_session(self) -> str | None:
        return None

    def _add(self, line: str) -> Sequence[Entry]:
        text = bounded_json.text(line.rstrip("\r\n"), MOST_LINE)
        self._lines += 1
        self._piece.append(text)
        self._piece_size += len(text)
        self._kept = (self._kept + text + "\n")[-MOST_OUTPUT:]
        size = next((size for most, size in PIECES if self._lines <= most), LARGEST_PIECE)
        return self._flush() if len(self._piece) >= size or self._piece_size >= MOST_OUTPUT else ()

    def _flush(self) -> Sequence[Entry]:
        text = "\n".join(self._piece) + "\n"
        self._piece, self._piece_size = [], 0
        data = {"id": ID, "command": self._command, "running": True, "chunk": text}
        return (Entry(kind=EntryKind.COMMAND, text=text, data=data),)
