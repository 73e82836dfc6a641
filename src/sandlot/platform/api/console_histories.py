"""The console's routes about the lives of sandboxes: what happened, why it ended, forks, and those that are over."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from sandlot.platform.api.console import API
from sandlot.platform.api.console_responses import OWN_METADATA
from sandlot.platform.api.deps import Given, Reader
from sandlot.platform.api.errors import PROBLEMS
from sandlot.platform.core.console import PastSandbox
from sandlot.platform.core.model import Session

router = APIRouter(prefix=API, tags=["console"], responses=PROBLEMS)


class ConsolePastSandbox(BaseModel):
    id: str
    template: str
    state: str = Field(description="starting, running, paused or ended.")
    created_at: datetime
    started_at: datetime
    ended_at: datetime | None
    end_reason: str | None = Field(description="In the provider's words.")
    source: str | None = Field(description="The sandbox whose state it began with.")
    cpu: int
    memory_mb: int
    metadata: dict[str, str]
    session_id: str | None
    user_id: str | None
    name: str | None = Field(description="The name of its session.")

    @classmethod
    def of(cls, past: PastSandbox, session: Session | None = None) -> Self:
        metadata = session.metadata if session is not None else past.metadata
        return cls(
            id=past.id,
            template=past.template,
            state=past.state,
            created_at=past.created_at,
            started_at=past.started_at,
            ended_at=past.ended_at,
            end_reason=past.end_reason,
            source=past.source,
            cpu=past.cpu_count,
            memory_mb=past.memory_mb,
            metadata={name: value for name, value in metadata.items() if not name.startswith(OWN_METADATA)},
            session_id=session.id if session is not None else None,
            user_id=session.user_id if session is not None else None,
            name=session.session_id if session is not None else None,
        )


class ConsolePastList(BaseModel):
    sandboxes: list[ConsolePastSandbox] = Field(description="Newest first.")


class ConsoleMark(BaseModel):
    at: datetime
    kind: str = Field(description="created, paused, resumed, saved, ended; `session …`: an event of its session.")
    detail: str | None


class ConsoleLife(BaseModel):
    sandbox: ConsolePastSandbox | None = Field(description="None: its provider does not remember.")
    marks: list[ConsoleMark] = Field(description="Oldest first.")
    why: str | None = Field(description="Why it ended, as a sentence.")


class ConsoleForkTree(BaseModel):
    sandboxes: list[ConsolePastSandbox] = Field(description="Parents before children; `source` is the parent.")


@router.get("/sandboxes/ended")
async def ended_sandboxes(
    deps: Given, caller: Reader, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> ConsolePastList:
    """Sandboxes that ended and are remembered: of the caller's sessions; for admins, all of the default provider."""
    found = await deps.console.histories.ended(caller, limit)
    return ConsolePastList(sandboxes=[ConsolePastSandbox.of(past, session) for past, session in found])


@router.get("/sandboxes/{sandbox_id}/history")
async def sandbox_life(sandbox_id: str, deps: Given, caller: Reader) -> ConsoleLife:
    """What happened to a sandbox and why it ended; also after its end."""
    life = await deps.console.histories.life(caller, sandbox_id)
    return ConsoleLife(
        sandbox=ConsolePastSandbox.of(life.sandbox, life.session) if life.sandbox is not None else None,
        marks=[ConsoleMark(at=mark.at, kind=mark.kind, detail=mark.detail) for mark in life.marks],
        why=life.why,
    )


@router.get("/sandboxes/{sandbox_id}/forks")
async def fork_tree(sandbox_id: str, deps: Given, caller: Reader) -> ConsoleForkTree:
    """Its fork tree: from the first ancestor that is remembered to all that came from it."""
    found = await deps.console.histories.tree(caller, sandbox_id)
    return ConsoleForkTree(sandboxes=[ConsolePastSandbox.of(past) for past in found])
