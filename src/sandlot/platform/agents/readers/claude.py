"""Reads Claude Code's stream of JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from sandlot.platform.agents.readers.diffs import FileEdit, patched, replaced
from sandlot.platform.agents.readers.notes import Call, TurnNotes
from sandlot.platform.agents.readers.values import at, count_at, list_at, map_at, money_at, text_at, words
from sandlot.platform.core.tasks import Entry, TokenUsage

SHELL, ASK = "Bash", "AskUserQuestion"
EDITS = frozenset({"Edit", "Write", "MultiEdit", "NotebookEdit"})
MOST_ANSWERS = 2000
_EXIT = re.compile(r"^(?:Error: )?Exit code (\d{1,3})\n?", re.IGNORECASE)


class ClaudeEvents:
    says_so = True

    def __init__(self, notes: TurnNotes) -> None:
        self._notes = notes
        self._answers: set[str] = set()
        self._guess = TokenUsage()

    def read(self, event: Mapping[str, Any]) -> Iterator[Entry]:
        match event.get("type"):
            case "system" if event.get("subtype") == "init":
                self._notes.session = text_at(event, "session_id", most=200) or self._notes.session
                self._notes.model = text_at(event, "model", most=200) or self._notes.model
                self._notes.directory = self._notes.directory or text_at(event, "cwd", most=4096)
            case "assistant":
                for part in list_at(event, "message", "content"):
                    yield from self._said(part)
                self._estimate(map_at(event, "message"))
            case "user":
                for part in list_at(event, "message", "content"):
                    if at(part, "type") == "tool_result":
                        yield from self._returned(part, map_at(event, "tool_use_result"))
            case "result":
                yield from self._done(event)

    def _said(self, part: object) -> Iterator[Entry]:
        match at(part, "type"):
            case "text":
                yield from self._notes.message(text_at(part, "text"))
            case "thinking":
                yield from self._notes.thinking(text_at(part, "thinking"))
            case "tool_use":
                yield from self._called(text_at(part, "id", most=200), text_at(part, "name", most=200), part)

    def _called(self, id: str, name: str, part: object) -> Iterator[Entry]:
        given = map_at(part, "input")
        if name == SHELL:
            yield from self._notes.begin(id, name, given, text_at(given, "command"))
        elif name in EDITS:
            self._notes.hold(id, name, given)
        elif name == ASK:
            self._notes.hold(id, name, given)
            for question in list_at(given, "questions")[:1]:
                options = [text_at(option, "label", most=500) for option in list_at(question, "options")]
                yield from self._notes.ask(text_at(question, "question"), [option for option in options if option])
        else:
            yield from self._notes.begin(id, name, given)

    def _returned(self, part: object, result: Mapping[str, Any]) -> Iterator[Entry]:
        call = self._notes.take(text_at(part, "tool_use_id", most=200))
        if call is None or call.name == ASK:
            return
        output, ok = words(at(part, "content")), at(part, "is_error") is not True
        if call.name in EDITS and ok:
            yield from map(self._notes.edit, _changes(call, result))
            return
        code = _EXIT.match(output) if call.command is not None and not ok else None
        if code is not None:
            output = output[code.end() :]
        yield from self._notes.finish(call, output, ok=ok, exit_code=int(code[1]) if code else None)

    def _done(self, event: Mapping[str, Any]) -> Iterator[Entry]:
        notes = self._notes
        notes.ended = True
        notes.session = text_at(event, "session_id", most=200) or notes.session
        notes.turns = count_at(event, "num_turns") or None
        notes.result = text_at(event, "result") or notes.result
        yield from notes.used(self._used(event))
        if event.get("is_error") is True or text_at(event, "subtype", most=100).startswith("error"):
            reason = text_at(event, "result") or text_at(event, "subtype", most=100) or "the agent reports an error"
            yield from notes.error(reason, fatal=True)

    def _estimate(self, message: Mapping[str, Any]) -> None:
        """What was used so far. It tells how much it wrote only at the end: a token is about four letters of JSON."""
        if not map_at(message, "usage"):
            return
        id, said = text_at(message, "id", most=200), _tokens(map_at(message, "usage"))
        if id in self._answers:  # one answer comes in several events
            said = TokenUsage()
        elif len(self._answers) < MOST_ANSWERS:
            self._answers.add(id)
        written = sum(len(str(part)) for part in list_at(message, "content")) // 4
        self._guess = self._guess.plus(TokenUsage(input=said.input, output=written, cached=said.cached))
        self._notes.guess(self._guess)

    def _used(self, event: Mapping[str, Any]) -> TokenUsage:
        return replace(_tokens(map_at(event, "usage")), cost_usd=self._cost(event))

    def _cost(self, event: Mapping[str, Any]) -> float | None:
        """Of this turn: after a resume some versions tell the cost of the whole conversation, and count its tokens by model."""
        cost, before = money_at(event, "total_cost_usd"), self._notes.spent
        if cost is None or before.cost_usd is None or cost < before.cost_usd:
            return cost
        models = [map_at(model) for model in list(map_at(event, "modelUsage").values())[:20]]
        counted = sum(count_at(model, "outputTokens") for model in models)
        is_all = counted >= count_at(event, "usage", "output_tokens") + before.output
        return round(cost - before.cost_usd, 6) if is_all else cost


def _tokens(usage: Mapping[str, Any]) -> TokenUsage:
    cached = count_at(usage, "cache_read_input_tokens")
    return TokenUsage(
        input=count_at(usage, "input_tokens") + count_at(usage, "cache_creation_input_tokens") + cached,
        output=count_at(usage, "output_tokens"),
        cached=cached,
    )


def _changes(call: Call, result: Mapping[str, Any]) -> Iterator[FileEdit]:
    given = call.input
    path = text_at(given, "file_path", most=4096) or text_at(given, "notebook_path", most=4096)
    hunks = [hunk for hunk in list_at(result, "structuredPatch") if isinstance(hunk, Mapping)]
    if hunks:
        lines = [
            text
            for hunk in hunks
            for text in (_place(hunk), *(line for line in list_at(hunk, "lines") if isinstance(line, str)))
        ]
        yield patched(path, "\n".join(lines)[:200_000])
    elif call.name == "Write":
        yield replaced(path, text_at(result, "originalFile", most=200_000), text_at(given, "content", most=200_000))
    elif call.name == "MultiEdit":
        for edit in list_at(given, "edits"):
            yield replaced(path, text_at(edit, "old_string"), text_at(edit, "new_string"))
    else:
        new = text_at(given, "new_string") or text_at(given, "new_source")
        yield replaced(path, text_at(given, "old_string"), new)


def _place(hunk: Mapping[str, Any]) -> str:
    start, lines = count_at(hunk, "oldStart"), count_at(hunk, "oldLines")
    return f"@@ -{start},{lines} +{count_at(hunk, 'newStart')},{count_at(hunk, 'newLines')} @@"
