"""Reads GitHub Copilot CLI's stream of JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from sandlot.platform.agents.readers.diffs import patched, replaced
from sandlot.platform.agents.readers.notes import Call, TurnNotes
from sandlot.platform.agents.readers.values import at, code_at, count_at, map_at, text_at, words
from sandlot.platform.core.tasks import Entry, TokenUsage

SHELL = "bash"
_SHELL_END = re.compile(r"\n?<shellId: \w+ completed with exit code -?\d+>\s*\Z")
EDITS = frozenset({"edit", "create", "str_replace_editor", "apply_patch"})


class CopilotEvents:
    says_so = True

    def __init__(self, notes: TurnNotes) -> None:
        self._notes = notes

    def read(self, event: Mapping[str, Any]) -> Iterator[Entry]:
        if event.get("ephemeral") is True:
            return
        notes, data = self._notes, map_at(event, "data")
        match event.get("type"):
            case "assistant.message":
                yield from notes.thinking(text_at(data, "reasoningText"))
                yield from notes.message(text_at(data, "content"))
            case "assistant.reasoning":
                yield from notes.thinking(text_at(data, "content"))
            case "sandlot.usage":
                yield from notes.used(self._counted(map_at(event, "usage", "modelMetrics")))
            case "tool.execution_start":
                yield from self._called(data)
            case "tool.execution_complete":
                yield from self._returned(data)
            case "session.error":
                yield from notes.error(text_at(data, "message"), fatal=True)
            case "result":
                notes.ended = True
                notes.session = text_at(event, "sessionId", most=200) or notes.session

    def _called(self, data: Mapping[str, Any]) -> Iterator[Entry]:
        id, name = text_at(data, "toolCallId", most=200), text_at(data, "toolName", most=200)
        given = map_at(data, "arguments")
        if name == SHELL:
            yield from self._notes.begin(id, name, given, text_at(given, "command"))
        elif name in EDITS:
            self._notes.hold(id, name, given)
        else:
            yield from self._notes.begin(id, name, given)

    def _returned(self, data: Mapping[str, Any]) -> Iterator[Entry]:
        call = self._notes.take(text_at(data, "toolCallId", most=200))
        if call is None:
            return
        ok = data.get("success") is not False
        output = _SHELL_END.sub("", words(at(data, "result", "content")) or text_at(data, "error", "message"))
        if call.name in EDITS and ok:
            yield self._edited(call, text_at(data, "result", "detailedContent", most=200_000))
            return
        code = code_at(data, "shellExecution", "exitCode")
        yield from self._notes.finish(call, output, ok=ok and not code, exit_code=code)

    def _edited(self, call: Call, diff: str) -> Entry:
        given = call.input
        path = text_at(given, "path", most=4096)
        if "@@ " in diff:
            change = patched(path, diff[diff.index("@@ ") :])
        elif "file_text" in given:
            change = replaced(path, "", text_at(given, "file_text", most=200_000))
        else:
            change = replaced(path, text_at(given, "old_str"), text_at(given, "new_str"))
        return self._notes.edit(change)

    def _counted(self, models: Mapping[str, Any]) -> TokenUsage:
        """Of this turn: it tells the usage of the whole conversation."""
        total = TokenUsage()
        for told in list(models.values())[:20]:
            usage = map_at(told, "usage")
            total = total.plus(
                TokenUsage(
                    input=count_at(usage, "inputTokens"),
                    output=count_at(usage, "outputTokens"),
                    cached=count_at(usage, "cacheReadTokens"),
                )
            )
        return total.since(self._notes.spent)
