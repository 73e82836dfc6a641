"""What left a sandbox: the egress log. Sandlot's own; E2B has none of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal, Self

from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field

from sandlot.engine.api.deps import Asking, Given, SandboxId
from sandlot.engine.api.errors import problems
from sandlot.engine.core.model import EgressEntry

router = APIRouter(tags=["sandboxes"])
PAGE = 1000


class EgressOut(BaseModel):
    """Connections of one kind within a few seconds."""

    number: int = Field(description="Leads on: `after` of the next page.")
    at: datetime
    host: str
    port: int
    allowed: bool
    connections: int = Field(description="That began; 0: bytes of such as began before.")
    bytesOut: int
    bytesIn: int
    rule: str | None = Field(description="The network rule that they fell under.")
    reason: str | None = Field(description="Why they were denied, or failed.")
    secrets: list[str] = Field(description="Names of the secrets that left with them.")

    @classmethod
    def of(cls, number: int, entry: EgressEntry) -> Self:
        return cls(
            number=number,
            at=entry.at.astimezone(UTC),
            host=entry.host,
            port=entry.port,
            allowed=entry.allowed,
            connections=entry.connections,
            bytesOut=entry.bytes_out,
            bytesIn=entry.bytes_in,
            rule=entry.rule,
            reason=entry.reason,
            secrets=list(entry.secrets),
        )


class EgressLogOut(BaseModel):
    entries: list[EgressOut] = Field(description="Oldest first.")
    leftOut: int = Field(description="Connections that were counted and have no entry: the log is bounded.")


@router.get("/sandboxes/{sandboxID}/egress", responses=problems(404), response_model=EgressLogOut)
async def egress(
    sandbox_id: SandboxId,
    deps: Given,
    caller: Asking,
    after: Annotated[int, Query(ge=0, le=2**53, description="`number` of the last entry already seen.")] = 0,
    limit: Annotated[int, Query(ge=1, le=PAGE)] = PAGE,
    format: Annotated[Literal["json", "jsonl"], Query(description="`jsonl`: an entry in each line.")] = "json",
) -> EgressLogOut | Response:
    """What left a sandbox, also one that has ended (`SANDLOT_KEEP_EGRESS_DAYS`). Sandlot's own."""
    found, left_out = await deps.egress.page(caller.team.id, sandbox_id, after=after, limit=limit)
    entries = [EgressOut.of(number, entry) for number, entry in found]
    if format == "jsonl":
        lines = "".join(f"{entry.model_dump_json()}\n" for entry in entries)
        return PlainTextResponse(lines, media_type="application/jsonl", headers={"X-Left-Out": str(left_out)})
    return EgressLogOut(entries=entries, leftOut=left_out)
