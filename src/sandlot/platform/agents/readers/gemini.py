"""Reads Gemini CLI's stream of JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from sandlot.platform.agents.readers.diffs import patched, replaced
from sandlot.platform.agents.readers.notes import Call, TurnNotes
from sandlot.platform.agents.readers.values import count_at, map_at, text_at, words
from sandlot.platform.core.tasks import Entry, TokenUsage

SHELL = "run_shell_command"
EDITS = frozenset({"replace", "write_file", "edit"})
_EXIT = re.compile(r"^Exit Code: (-?\d{1,3})$", re.MULTILINE)
_OUTPUT = re.compile(
    r"^Output: (.*?)(?=^(?:Error|Exit Code|Signal|Background PIDs|Process Group PGID): |\Z)", re.MULTILINE | re.DOTALL
)


class GeminiEvents:
    says_so = True

    def __init__(self, notes: TurnNotes) -> None:
        self._notes = notes
        self._saying: list[str] = []

    def read(self, event: Mapping[str, Any]) -> Iterator[Entry]:
        kind = event.get("type")
        if kind == "message" and event.get("role") == "assistant":
            # It speaks in pieces; what it said is whole when something else comes.
            self._saying.append(text_at(event, "content"))
            return
        yield from self._said()
        match kind:
            case "init":
                self._notes.session = text_at(event, "session_id", most=200) or self._notes.session
                self._notes.model = text_at(event, "model", most=200) or self._notes.model
            case "thought":
                yield from self._notes.thinking(text_at(event, "content") or words(event.get("thought")))
            case "tool_use":
                yield from self._called(event)
            case "tool_result":
                yield from self._returned(event)
            case "error":
                yield from self._notes.error(text_at(event, "message"))
            case "result":
                yield from self._done(event)

    def _said(self) -> Iterator[Entry]:
        text, self._saying = "".join(self._saying), []
        yield from self._notes.message(text[:100_000])

    def _called(self, event: Mapping[str, Any]) -> Iterator[Entry]:
        id, name = text_at(event, "tool_id", most=200), text_at(event, "tool_name", most=200)
        given = map_at(event, "parameters")
        if name == SHELL:
            yield from self._notes.begin(id, name, given, text_at(given, "command"))
        elif name in EDITS:
            self._notes.hold(id, name, given)
        else:
            yield from self._notes.begin(id, name, given)

    def _returned(self, event: Mapping[str, Any]) -> Iterator[Entry]:
        call = self._notes.take(text_at(event, "tool_id", most=200))
        if call is None:
            return
        ok = text_at(event, "status", most=40) != "error"
        output = text_at(event, "output") or text_at(event, "error", "message")
        if call.name in EDITS and ok:
            yield self._edited(call, output)
            return
        code = _EXIT.search(output) if call.command is not None else None
        shown = _OUTPUT.search(output) if call.command is not None else None
        yield from self._notes.finish(
            call, shown[1] if shown is not None else output, ok=ok, exit_code=int(code[1]) if code is not None else None
        )

    def _edited(self, call: Call, output: str) -> Entry:
        path = text_at(call.input, "file_path", most=4096)
        if call.name == "write_file":
            change = replaced(path, "", text_at(call.input, "content", most=200_000))
        elif "\n@@ " in output:
            change = patched(path, output[output.index("\n@@ ") + 1 :])
        else:
            change = replaced(path, text_at(call.input, "old_string"), text_at(call.input, "new_string"))
        return self._notes.edit(change)

    def _done(self, event: Mapping[str, Any]) -> Iterator[Entry]:
        self._notes.ended = True
        stats = map_at(event, "stats")
        thoughts = count_at(stats, "total_tokens") - count_at(stats, "input_tokens") - count_at(stats, "output_tokens")
        usage = TokenUsage(
            input=count_at(stats, "input_tokens"),
            output=count_at(stats, "output_tokens") + max(thoughts, 0),
            cached=count_at(stats, "cached"),
        )
        yield from self._notes.used(usage)
        if text_at(event, "status", most=40) == "error":
            yield from self._notes.error(text_at(event, "error", "message") or "the turn failed", fatal=True)
