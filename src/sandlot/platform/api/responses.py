"""What callers get back."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from sandlot.platform.core.backends import BackendKind, Capability
from sandlot.platform.core.model import Session, SessionStatus
from sandlot.platform.sessions.queue import QueuePosition


class QueueInfo(BaseModel):
    position: int = Field(description="1 is next.")
    reason: str | None = Field(description="Why it waits.")


class SandboxInfo(BaseModel):
    sandbox_id: str
    session_id: str
    user_id: str
    status: SessionStatus
    provider: str
    backend: str | None = Field(description="The backend that it was asked for by, if it was.")
    template_id: str | None
    agent_type: str | None
    metadata: dict[str, str]
    timeout: int
    created_at: datetime
    started_at: datetime | None
    last_used_at: datetime
    expires_at: datetime | None = Field(description="When it is paused, or deleted, unless you ask for more time.")
    problem: str | None
    queue: QueueInfo | None = Field(description="Only while it waits.")


class SandboxPage(BaseModel):
    sandboxes: list[SandboxInfo]
    next: str | None = Field(description="Give it as `after` for more.")


class ToolsAccess(BaseModel):
    url: str = Field(description="An MCP server: streamable HTTP.")
    token: str = Field(description="For the header `Authorization: Bearer`; opens this sandbox only.")


class AgentInfo(BaseModel):
    id: str
    title: str
    program: str = Field(description="Its command in a sandbox.")
    template: str | None = Field(
        description="What it works on tasks in, unless a task says otherwise. None: not at all."
    )
    env: list[str] = Field(description="Variables with which it finds its model; one of them is enough.")
    resumes: bool = Field(description="It remembers its earlier turns of a task.")


class AgentList(BaseModel):
    agents: list[AgentInfo]


class BackendInfo(BaseModel):
    name: str
    kind: BackendKind
    provider: str
    template: str | None = Field(description="What its sandboxes begin with. None: what the provider has by default.")
    capabilities: list[Capability]
    fallback: list[str] = Field(description="Backends that stand in for it when its provider is down or full.")
    problem: str | None = Field(description="Why its provider cannot be used now.")


class BackendList(BaseModel):
    backends: list[BackendInfo]


class PortInfo(BaseModel):
    url: str


class CommandResult(BaseModel):
    output: str = Field(description="What it wrote to both, in the order in which it came.")
    stdout: str
    stderr: str
    exit_code: int | None = Field(description="None for a command in the background.")
    timed_out: bool = False
    truncated: bool = Field(False, description="There was more output than is kept; the event log may have it.")
    command_id: str | None = None
    pid: int | None = None


class FileWritten(BaseModel):
    path: str
    size: int


class FileContent(BaseModel):
    content: str
    encoding: str = "utf-8"


def sandbox(session: Session, position: QueuePosition | None = None) -> SandboxInfo:
    return SandboxInfo(
        sandbox_id=session.id,
        session_id=session.session_id,
        user_id=session.user_id,
        status=session.status,
        provider=session.provider,
        backend=session.backend,
        template_id=session.template_id,
        agent_type=session.agent_type,
        metadata=dict(session.metadata),
        timeout=session.timeout_s,
        created_at=session.created_at,
        started_at=session.started_at,
        last_used_at=session.last_used_at,
        expires_at=session.expires_at if session.status is SessionStatus.RUNNING else None,
        problem=session.problem,
        queue=QueueInfo(position=position.position, reason=position.reason) if position is not None else None,
    )
