"""What every reader of an agent's output gives: entries of the timeline, what the turn used, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sandlot.platform.core.tasks import Entry, TokenUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    """How a turn ended. `problem` says why it did not come to its end; `question` what a person has to decide first."""

    entries: Sequence[Entry]
    agent_session: str | None
    usage: TokenUsage
    result: str
    problem: str | None
    question: str | None


class StreamReader(Protocol):
    """Reads one turn's output line by line. The same lines give the same entries; no line makes it fail."""

    def feed(self, line: str) -> Sequence[Entry]: ...

    def end(self, exit_code: int | None, errors: str) -> TurnEnd:
        """After the last line. `exit_code` is None if the turn was lost with its machine."""

    @property
    def usage(self) -> TokenUsage:
        """So far in this turn."""

    @property
    def agent_session(self) -> str | None:
        """The agent's own name for the conversation, with which it is resumed."""
