"""What is known of sandboxes beyond their life: moves, forks, why they ended. Sandlot's own; E2B has none of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from sandlot.engine.api.deps import Asking, Given, SandboxId
from sandlot.engine.api.errors import problems
from sandlot.engine.api.responses import isolation_of
from sandlot.engine.api.sandboxes import STATES
from sandlot.engine.core.model import LifecycleMark, Sandbox

router = APIRouter(tags=["sandboxes"])
PAGE = 100


class PastSandbox(BaseModel):
    sandboxID: str
    templateID: str
    alias: str
    state: Literal["starting", "running", "paused", "ended"]
    createdAt: datetime
    startedAt: datetime
    endedAt: datetime | None
    endReason: str | None = Field(description="Why it ended: killed, timeout, out of memory and so on.")
    source: str | None = Field(description="The sandbox whose state it began with.")
    cpuCount: int
    memoryMB: int
    diskSizeMB: int
    metadata: dict[str, str]
    runtime: str
    isolation: str | None

    @classmethod
    def of(cls, sandbox: Sandbox) -> Self:
        return cls(
            sandboxID=sandbox.id,
            templateID=sandbox.template_id,
            alias=sandbox.template_name,
            state=_state(sandbox),
            createdAt=sandbox.created_at.astimezone(UTC),
            startedAt=sandbox.started_at.astimezone(UTC),
            endedAt=sandbox.ended_at,
            endReason=sandbox.end_reason,
            source=sandbox.source,
            cpuCount=sandbox.resources.cpu_count,
            memoryMB=sandbox.resources.memory_mb,
            diskSizeMB=sandbox.resources.disk_mb,
            metadata=dict(sandbox.metadata),
            runtime=sandbox.runtime,
            isolation=isolation_of(sandbox),
        )


class Mark(BaseModel):
    at: datetime
    kind: str = Field(description="created, paused, resumed, saved (for a snapshot or forks), ended.")
    detail: str | None

    @classmethod
    def of(cls, mark: LifecycleMark) -> Self:
        return cls(at=mark.at, kind=mark.kind, detail=mark.detail)


class SandboxHistory(BaseModel):
    sandbox: PastSandbox
    marks: list[Mark] = Field(description="Oldest first.")
    forks: list[PastSandbox] = Field(description="Sandboxes that began with its state; also ended ones.")


@router.get("/sandboxes/ended", responses=problems())
async def ended(
    deps: Given,
    caller: Asking,
    since: Annotated[int | None, Query(ge=0, le=10**13, description="Unix time in milliseconds.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = PAGE,
) -> list[PastSandbox]:
    """Sandboxes that ended, for as long as they are remembered (`SANDLOT_KEEP_ENDED_HOURS`); newest first. Sandlot's own."""
    moment = datetime.fromtimestamp(since / 1000, UTC) if since is not None else None
    found = await deps.history.store.ended(caller.team.id, since=moment, limit=limit)
    return [PastSandbox.of(sandbox) for sandbox in found]


@router.get("/sandboxes/{sandboxID}/history", responses=problems(404))
async def history(sandbox_id: SandboxId, deps: Given, caller: Asking) -> SandboxHistory:
    """The life of a sandbox, also of one that has ended: its moves, its forks, why it ended. Sandlot's own."""
    sandbox = await deps.control.lookup.get(caller.team.id, sandbox_id, include_ended=True)
    store = deps.history.store
    forks = [fork for fork in await store.forks(sandbox.id) if fork.team_id == caller.team.id]
    return SandboxHistory(
        sandbox=PastSandbox.of(sandbox),
        marks=[Mark.of(mark) for mark in await store.marks(sandbox.id)],
        forks=[PastSandbox.of(fork) for fork in forks],
    )


def _state(sandbox: Sandbox) -> Literal["starting", "running", "paused", "ended"]:
    if sandbox.state in STATES["running"]:
        return "running"
    if sandbox.state in STATES["paused"]:
        return "paused"
    return "starting" if sandbox.ended_at is None and sandbox.end_reason is None else "ended"
