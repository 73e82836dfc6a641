"""Events: what happened, to which subject, and the form of event types. The set of types is open."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

SANDBOX = "sandbox"  # the kind of subject that sessions are
MAX_TYPE = 64
MAX_SUBJECT = 256
_TYPE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
_KIND = re.compile(r"[a-z][a-z0-9_]*")


class SandboxEventType(StrEnum):
    """The types of events about sandboxes. Other subjects bring types of their own."""

    CREATED = "created"
    READY = "ready"
    PAUSED = "paused"
    RESUMED = "resumed"
    COMMAND_STARTED = "command.started"
    COMMAND_OUTPUT = "command.output"
    COMMAND_ENDED = "command.ended"
    TERMINAL_OPENED = "terminal.opened"
    TERMINAL_CLOSED = "terminal.closed"
    FILE_CHANGED = "file.changed"
    ERROR = "error"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Subject:
    """What an event is about: a kind of thing, and the id of one."""

    kind: str
    id: str

    def __post_init__(self) -> None:
        if not _KIND.fullmatch(self.kind) or not self.id or len(self.kind) + len(self.id) > MAX_SUBJECT:
            raise ValueError(f"{self.kind[:80]}:{self.id[:80]} is not a subject of the form kind:id")

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened. `id` is its position in the log: 0 until it is stored."""

    type: str
    at: datetime
    user_id: str
    subject: Subject
    session_id: str | None = None  # the caller's name of the session it happened in, if there is one
    data: Mapping[str, Any] = field(default_factory=dict)
    id: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", check_type(str(self.type)))


def check_type(text: str) -> str:
    """Raises `ValueError` unless it is made of lower-case words with dots between them."""
    if len(text) > MAX_TYPE or not _TYPE.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is not an event type: lower-case words with dots, such as command.ended")
    return text


def check_pattern(text: str) -> str:
    """A type, or the beginning of types: `task.*`. `*` means all. Raises `ValueError`."""
    if text != "*":
        check_type(text.removesuffix(".*"))
    return text


def matches_type(pattern: str, type: str) -> bool:
    if pattern == "*" or pattern == type:
        return True
    return pattern.endswith(".*") and type.startswith(pattern[:-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events a reader wants. What is None does not count. `types` are patterns."""

    user_id: str | None = None
    subject_kind: str | None = None
    subject_id: str | None = None
    session_id: str | None = None
    types: frozenset[str] | None = None

    def matches(self, event: Event) -> bool:
        pairs = (
            (self.user_id, event.user_id),
            (self.subject_kind, event.subject.kind),
            (self.subject_id, event.subject.id),
            (self.session_id, event.session_id),
        )
        if any(wanted is not None and wanted != found for wanted, found in pairs):
            return False
        return self.types is None or any(matches_type(pattern, event.type) for pattern in self.types)
