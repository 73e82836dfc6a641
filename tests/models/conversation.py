"""What all model protocols have in common: who said what, which tools were called and what they returned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Call:
    id: str
    tool: str
    input: Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    call_id: str
    text: str
    failed: bool = False


@dataclass(frozen=True)
class Message:
    """`user` also speaks for tools: their results come in its messages."""

    role: str
    text: str = ""
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()

    @property
    def is_prompt(self) -> bool:
        return self.role == "user" and not self.results


@dataclass(frozen=True)
class Tool:
    """`kind` is `function`, or `custom` for a tool of the Responses API whose input is plain text."""

    name: str
    kind: str = "function"
    namespace: str | None = None


@dataclass(frozen=True)
class Asked:
    """One request to a model, whatever protocol it came in."""

    protocol: str
    model: str
    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[Tool, ...] = ()
    stream: bool = False
    schema: Mapping[str, Any] | None = None
    body: Mapping[str, Any] = field(default_factory=dict)
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def prompt_index(self) -> int:
        """Where the last prompt is; what follows it are the turns that answer it."""
        return max((n for n, message in enumerate(self.messages) if message.is_prompt), default=0)

    @property
    def prompt(self) -> str:
        return self.messages[self.prompt_index].text if self.messages else ""

    @property
    def turn(self) -> int:
        """How many turns of the model have answered the last prompt so far."""
        return len(self.answers)

    @property
    def answers(self) -> tuple[Message, ...]:
        return tuple(message for message in self.messages[self.prompt_index :] if message.role == "assistant")

    @property
    def results(self) -> tuple[Result, ...]:
        """What the tools of the latest turn returned."""
        return self.messages[-1].results if self.messages else ()

    def results_before(self, turn: int) -> str:
        """The text of the results that the turn with this number was given."""
        seen = 0
        given = ""
        for message in self.messages[self.prompt_index :]:
            if message.role == "assistant":
                seen += 1
            elif seen == turn:
                given = "\n".join(result.text for result in message.results)
        return given

    def record(self, *, with_body: bool = False) -> dict[str, Any]:
        """What is kept of it, ready for JSON."""
        kept = asdict(replace(self, body={}))
        kept["tools"] = [tool.name for tool in self.tools]
        kept["turn"] = self.turn
        if with_body:
            kept["body"] = self.body
        return kept


def merged(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Clients cut one turn into several messages, each in its own way: neighbours of one role become one again."""
    whole: list[Message] = []
    for message in messages:
        if whole and whole[-1].role == message.role:
            last = whole[-1]
            whole[-1] = replace(
                last,
                text="\n".join(filter(None, (last.text, message.text))),
                calls=last.calls + message.calls,
                results=last.results + message.results,
            )
        else:
            whole.append(message)
    return tuple(whole)


def text_of(content: Any) -> str:
    """The text in what protocols allow as content: nothing, a string, or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "\n".join(filter(None, (text_of(part) for part in content)))
    if isinstance(content, Mapping):
        for key in ("text", "content", "output"):
            if key in content:
                return text_of(content[key])
    return ""
