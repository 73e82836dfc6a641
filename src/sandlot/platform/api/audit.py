"""The audit log's routes, and what is written to it: every request that changed something, but not what happens inside sandboxes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.types import Message, Receive, Scope, Send

from sandlot.platform.api.deps import Given, Reader
from sandlot.platform.api.errors import PROBLEMS
from sandlot.platform.audit.log import AuditLog
from sandlot.platform.core.model import Caller

router = APIRouter(prefix="/audit", tags=["audit"], responses=PROBLEMS)
DATA = "sandlot.audit"  # where in the scope a route leaves more to be written
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_INSIDE = ("/sandboxes/run-command", "/sandboxes/upload-file", "/sandboxes/connect", "/sandboxes/timeout")


class AuditEntry(BaseModel):
    seq: int
    at: datetime
    actor: str = Field(description="A user, or `admin`.")
    action: str
    target: str
    status: int
    data: dict[str, Any]
    digest: str = Field(description="Covers the record and the digest of the one before.")


class AuditPage(BaseModel):
    records: list[AuditEntry]


class AuditCheck(BaseModel):
    records: int
    digest: str = Field(description="Of the last record. Keep it elsewhere: a log that was cut off has another.")
    problem: str | None


@router.get("")
async def newest(
    deps: Given,
    caller: Reader,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[int | None, Query(ge=1, description="Continue a page: older than this record.")] = None,
) -> AuditPage:
    """Who did what, newest first. Needs an admin key."""
    found = await deps.audit.newest(caller, limit, before)
    return AuditPage(
        records=[
            AuditEntry(
                seq=each.seq,
                at=each.at,
                actor=each.actor,
                action=each.action,
                target=each.target,
                status=each.status,
                data=dict(each.data),
                digest=each.digest,
            )
            for each in found
        ]
    )


@router.get("/check")
async def check(deps: Given, caller: Reader) -> AuditCheck:
    """Follow the chain of digests through the whole log. Needs an admin key."""
    found = await deps.audit.verify(caller)
    return AuditCheck(records=found.records, digest=found.digest, problem=found.problem)


def note(request: Request, **data: Any) -> None:
    """Have more written about this request than its path: no secrets."""
    request.scope[DATA] = data


def is_written(scope: Scope) -> bool:
    return scope["type"] == "http" and scope["method"] not in _SAFE and not scope["path"].startswith(_INSIDE)


async def audited(
    log: AuditLog,
    caller: Caller,
    app: Callable[[Scope, Receive, Send], Awaitable[None]],
    scope: Scope,
    call: tuple[Receive, Send],
) -> None:
    """Serve a request, and write what came of it. Refusals for want of permission are written, too."""
    receive, send = call
    status = 500

    async def watched(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        await send(message)

    target, method = scope["path"], scope["method"]
    await app(scope, receive, watched)
    if status < 400 or status == 403:
        route = scope.get("route")
        await log.write(caller, f"{method} {getattr(route, 'path', target)}", target, status, scope.get(DATA))
