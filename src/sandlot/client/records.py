"""What a client gets back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class QueuePosition:
    position: int
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxInfo:
    sandbox_id: str
    session_id: str
    user_id: str
    status: str
    provider: str
    template_id: str | None
    metadata: Mapping[str, str]
    timeout: int
    problem: str | None
    queue: QueuePosition | None
    backend: str | None = None

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> SandboxInfo:
        queue = answer.get("queue")
        plain = (
            "sandbox_id",
            "session_id",
            "user_id",
            "status",
            "provider",
            "template_id",
            "timeout",
            "problem",
            "backend",
        )
        return cls(
            **{name: answer.get(name) for name in plain},  # type: ignore[arg-type]
            metadata=dict(answer.get("metadata") or {}),
            queue=QueuePosition(queue["position"], queue.get("reason")) if queue else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsAccess:
    """An MCP server inside a sandbox: streamable HTTP, the token as bearer."""

    url: str
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    output: str
    stdout: str
    stderr: str
    exit_code: int | None
    timed_out: bool = False
    truncated: bool = False
    command_id: str | None = None
    pid: int | None = None

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> CommandResult:
        return cls(**{name: answer[name] for name in cls.__dataclass_fields__ if name in answer})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutput:
    """One piece of a streamed command: `type` is started, stdout, stderr or ended."""

    type: str
    data: str = ""
    exit_code: int | None = None
    pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """`subject` is what it is about, as `kind:id`; `sandbox_id` is empty unless that is a sandbox."""

    id: int
    type: str
    at: str
    user_id: str
    subject: str
    sandbox_id: str = ""
    session_id: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Event:
        known = {name: answer[name] for name in cls.__dataclass_fields__ if name in answer and name != "subject"}
        return cls(**known, subject=f"{answer['subject']['kind']}:{answer['subject']['id']}")
