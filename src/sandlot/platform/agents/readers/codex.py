"""Reads the stream of JSON of `codex exec`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sandlot.platform.agents.readers.diffs import FileEdit
from sandlot.platform.agents.readers.notes import TurnNotes
from sandlot.platform.agents.readers.values import code_at, count_at, list_at, map_at, text_at, words
from sandlot.platform.core.tasks import Entry, TokenUsage


class CodexEvents:
    says_so = True

    def __init__(self, notes: TurnNotes) -> None:
        self._notes = notes

    def read(self, event: Mapping[str, Any]) -> Iterator[Entry]:
        match event.get("type"):
            case "thread.started":
                self._notes.session = text_at(event, "thread_id", most=200) or self._notes.session
            case "item.started":
                yield from self._began(map_at(event, "item"))
            case "item.completed":
                yield from self._ended(map_at(event, "item"))
            case "turn.completed":
                self._notes.ended = True
                yield from self._notes.used(self._used(map_at(event, "usage")))
            case "turn.failed":
                self._notes.ended = True
                yield from self._notes.error(text_at(event, "error", "message") or "the turn failed", fatal=True)
            case "error":  # mostly a retry, of which nothing comes
                yield from self._notes.error(text_at(event, "message"))

    def _began(self, item: Mapping[str, Any]) -> Iterator[Entry]:
        id = text_at(item, "id", most=200)
        match item.get("type"):
            case "command_execution":
                yield from self._notes.begin(id, "shell", {}, text_at(item, "command"))
            case "mcp_tool_call":
                name = f"{text_at(item, 'server', most=100)}.{text_at(item, 'tool', most=100)}"
                yield from self._notes.begin(id, name, map_at(item, "arguments"))
            case "web_search":
                yield from self._notes.begin(id, "web_search", {"query": text_at(item, "query", most=2000)})

    def _ended(self, item: Mapping[str, Any]) -> Iterator[Entry]:
        id = text_at(item, "id", most=200)
        match item.get("type"):
            case "agent_message":
                yield from self._notes.message(text_at(item, "text"))
            case "reasoning":
                yield from self._notes.thinking(text_at(item, "text"))
            case "file_change":
                if text_at(item, "status", most=40) != "failed":
                    for change in list_at(item, "changes"):
                        yield self._notes.edit(FileEdit(text_at(change, "path", most=4096)))
            case "error":
                yield from self._notes.error(text_at(item, "message"))
            case "todo_list":
                todos = [map_at(each) for each in list_at(item, "items")]
                self._notes.hold(id, "todo", {"items": todos})
                yield from self._finish(id, "", ok=True)
            case "command_execution" | "mcp_tool_call" | "web_search":
                yield from self._began(item) if not self._notes.knows(id) else ()
                failed = text_at(item, "status", most=40) == "failed"
                output = text_at(item, "aggregated_output") or words(item.get("result") or item.get("error"))
                yield from self._finish(id, output, ok=not failed, exit_code=code_at(item, "exit_code"))

    def _finish(self, id: str, output: str, *, ok: bool, exit_code: int | None = None) -> Iterator[Entry]:
        call = self._notes.take(id)
        if call is not None:
            yield from self._notes.finish(call, output, ok=ok, exit_code=exit_code)

    def _used(self, usage: Mapping[str, Any]) -> TokenUsage:
        """Of this turn: after a resume it tells the usage of the whole conversation."""
        counts = TokenUsage(
            input=count_at(usage, "input_tokens"),
            output=count_at(usage, "output_tokens"),
            cached=count_at(usage, "cached_input_tokens"),
        )
        return counts.since(self._notes.spent)
