"""Which reader reads an agent's output, by the format that the agent's description names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sandlot.platform.agents.readers.claude import ClaudeEvents
from sandlot.platform.agents.readers.codex import CodexEvents
from sandlot.platform.agents.readers.copilot import CopilotEvents
from sandlot.platform.agents.readers.gemini import GeminiEvents
from sandlot.platform.agents.readers.lines import MOST_LINE, Dialect, EventLines
from sandlot.platform.agents.readers.notes import ASKING, TurnNotes
from sandlot.platform.agents.readers.opencode import OpenCodeEvents
from sandlot.platform.agents.readers.text import TextLines
from sandlot.platform.agents.reading import StreamReader, TurnEnd
from sandlot.platform.core.errors import ConfigurationError
from sandlot.platform.models.prices import LIST_PRICES, Prices

__all__ = ["ASKING", "MOST_LINE", "StreamReader", "TurnEnd", "stream_reader"]

_DIALECTS: Mapping[str, Callable[[TurnNotes], Dialect]] = {
    "claude-stream": ClaudeEvents,
    "codex-stream": CodexEvents,
    "copilot-stream": CopilotEvents,
    "gemini-stream": GeminiEvents,
    "opencode-stream": OpenCodeEvents,
}


def stream_reader(output: str, prices: Prices | None = None) -> StreamReader:
    """A new one for each turn. `output` is that of the description's `[task]` part."""
    notes = TurnNotes(prices or LIST_PRICES)
    if output == "text":
        return TextLines(notes)
    dialect = _DIALECTS.get(output)
    if dialect is None:
        raise ConfigurationError(
            f"{output!r} is not a stream that can be read (those are: {', '.join(_DIALECTS)}, text)"
        )
    return EventLines(dialect(notes), notes)
