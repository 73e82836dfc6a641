"""Reads the stream of JSON of `opencode run`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sandlot.platform.agents.readers.diffs import patched, replaced
from sandlot.platform.agents.readers.notes import TurnNotes
from sandlot.platform.agents.readers.values import at, code_at, count_at, map_at, money_at, text_at, words
from sandlot.platform.core.tasks import Entry, TokenUsage

SHELL = "bash"
EDITS = frozenset({"edit", "write", "patch", "apply_patch", "multiedit"})


class OpenCodeEvents:
    says_so = True

    def __init__(self, notes: TurnNotes) -> None:
        self._notes = notes
        self._total = TokenUsage()

    def read(self, event: Mapping[str, Any]) -> Iterator[Entry]:
        notes, part = self._notes, map_at(event, "part")
        notes.session = text_at(event, "sessionID", most=200) or notes.session
        match event.get("type"):
            case "text":
                yield from notes.message(text_at(part, "text"))
            case "reasoning":
                yield from notes.thinking(text_at(part, "text"))
            case "tool_use":
                yield from self._used_tool(part)
            case "step_finish":
                notes.ended = text_at(part, "reason", most=40) == "stop"
                notes.turns = (notes.turns or 0) + 1
                yield from notes.used(self._counted(part))
            case "error":
                told = at(event, "error")
                text = text_at(told, "data", "message") or text_at(told, "message") or words(told) or "an error"
                yield from notes.error(text, fatal=True)

    def _used_tool(self, part: Mapping[str, Any]) -> Iterator[Entry]:
        id, name, state = text_at(part, "callID", most=200), text_at(part, "tool", most=200), map_at(part, "state")
        given, told = map_at(state, "input"), map_at(state, "metadata")
        ok = text_at(state, "status", most=40) != "error"
        output = text_at(state, "output") or text_at(state, "error")
        if name in EDITS and ok:
            yield self._edit(given, told)
            return
        if name == SHELL:
            list(self._notes.begin(id, name, given, text_at(given, "command")))  # it tells of it when it has ended
            code = code_at(told, "exit")
            ok = ok and code in (0, None)
        else:
            self._notes.hold(id, name, given)
            code = None
        call = self._notes.take(id)
        if call is not None:
            yield from self._notes.finish(call, output, ok=ok, exit_code=code)

    def _edit(self, given: Mapping[str, Any], told: Mapping[str, Any]) -> Entry:
        path = text_at(given, "filePath", most=4096) or text_at(told, "filepath", most=4096)
        diff = text_at(told, "diff", most=200_000)
        if diff:
            place = diff.find("@@ ")
            change = patched(path, diff[max(place, 0) :])
        elif "content" in given:
            change = replaced(path, "", text_at(given, "content", most=200_000))
        else:
            change = replaced(path, text_at(given, "oldString"), text_at(given, "newString"))
        return self._notes.edit(change)

    def _counted(self, part: Mapping[str, Any]) -> TokenUsage:
        tokens = map_at(part, "tokens")
        cached = count_at(tokens, "cache", "read")
        step = TokenUsage(
            input=count_at(tokens, "input") + cached + count_at(tokens, "cache", "write"),
            output=count_at(tokens, "output") + count_at(tokens, "reasoning"),
            cached=cached,
            cost_usd=money_at(part, "cost") or None,  # 0 where it has no price
        )
        self._total = self._total.plus(step)
        return self._total
