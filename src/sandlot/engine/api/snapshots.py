"""The routes that let a sandbox rest and multiply: connect, pause, resume, snapshots, forks."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Query, Response

from sandlot.engine.api.deps import Asking, Deps, Given, SandboxId
from sandlot.engine.api.errors import problems, status_of
from sandlot.engine.api.requests import Connect, Fork, LegacyConnect, Pause, Resume, Snapshot
from sandlot.engine.api.responses import ForkOut, Problem, SandboxOut, SnapshotOut, shown
from sandlot.engine.api.sandboxes import DEFAULT_TIMEOUT_S, LEGACY_TIMEOUT_S
from sandlot.engine.control.listing import decode_cursor, encode_cursor
from sandlot.engine.core.errors import Conflict, EngineError
from sandlot.engine.core.model import Sandbox, State

router = APIRouter(tags=["sandboxes"])

PAGE = 100
RESUMED = {201: {"model": SandboxOut, "description": "It was paused and has been resumed."}, **problems(404, 409)}


@router.post("/v2/sandboxes/{sandboxID}/connect", responses=RESUMED, response_model_exclude_none=True)
async def connect(
    sandbox_id: SandboxId,
    deps: Given,
    caller: Asking,
    response: Response,
    body: Annotated[Connect | None, Body()] = None,
) -> SandboxOut:
    """Take hold of a sandbox, resume it if it is paused, and put its end off; never brings its end nearer."""
    body = body or Connect()
    timeout_s = DEFAULT_TIMEOUT_S if body.timeout is None else body.timeout
    return await _connect(deps, caller, sandbox_id, timeout_s, body.memory is not False, response)


@router.post("/sandboxes/{sandboxID}/connect", responses=RESUMED, response_model_exclude_none=True)
async def connect_legacy(
    sandbox_id: SandboxId, body: LegacyConnect, deps: Given, caller: Asking, response: Response
) -> SandboxOut:
    """The same for older SDKs, which must say for how long."""
    return await _connect(deps, caller, sandbox_id, body.timeout, body.memory is not False, response)


async def _connect(
    deps: Deps, caller: Asking, sandbox_id: str, timeout_s: int, memory: bool, response: Response
) -> SandboxOut:
    sandbox, resumed = await deps.control.suspension.connect(caller.team.id, sandbox_id, timeout_s, memory=memory)
    response.status_code = 201 if resumed else 200
    return shown(sandbox, deps.domain, response)


@router.post(
    "/sandboxes/{sandboxID}/resume", status_code=201, responses=problems(404, 409), response_model_exclude_none=True
)
async def resume(
    sandbox_id: SandboxId,
    deps: Given,
    caller: Asking,
    response: Response,
    body: Annotated[Resume | None, Body()] = None,
) -> SandboxOut:
    """Resume a paused sandbox; a running one is a conflict."""
    body = body or Resume()
    sandbox = await deps.control.lookup.get(caller.team.id, sandbox_id)
    if sandbox.state is State.RUNNING:
        raise Conflict(f"sandbox {sandbox.id!r} is already running; connect to it instead")
    timeout_s = LEGACY_TIMEOUT_S if body.timeout is None else body.timeout
    return await _connect(deps, caller, sandbox_id, timeout_s, body.memory is not False, response)


@router.post("/sandboxes/{sandboxID}/pause", status_code=204, responses=problems(404, 409))
async def pause(
    sandbox_id: SandboxId, deps: Given, caller: Asking, body: Annotated[Pause | None, Body()] = None
) -> None:
    """Keep a sandbox's memory and files (or its files alone) and free what it uses; connecting brings it back."""
    await deps.control.suspension.pause(caller.team.id, sandbox_id, memory=body is None or body.memory is not False)


@router.post(
    "/sandboxes/{sandboxID}/fork", status_code=201, responses=problems(404, 409), response_model_exclude_none=True
)
async def fork(
    sandbox_id: SandboxId, deps: Given, caller: Asking, body: Annotated[Fork | None, Body()] = None
) -> list[ForkOut]:
    """Make sandboxes that begin with a running one's state; each has its own outcome."""
    body = body or Fork()
    outcomes = await deps.control.snapshots.fork(
        caller.team.id,
        sandbox_id,
        count=1 if body.count is None else body.count,
        timeout_s=LEGACY_TIMEOUT_S if body.timeout is None else body.timeout,
    )
    return [_fork(outcome, deps.domain) for outcome in outcomes]


def _fork(outcome: Sandbox | EngineError, domain: str | None) -> ForkOut:
    if isinstance(outcome, Sandbox):
        return ForkOut(sandbox=SandboxOut.of(outcome, domain))
    return ForkOut(error=Problem(code=status_of(outcome), message=str(outcome)))


@router.post("/sandboxes/{sandboxID}/snapshots", status_code=201, responses=problems(404, 409))
async def snapshot(
    sandbox_id: SandboxId, deps: Given, caller: Asking, body: Annotated[Snapshot | None, Body()] = None
) -> SnapshotOut:
    """Keep a running sandbox's state as something to create sandboxes from; it outlives the sandbox."""
    body = body or Snapshot()
    made = await deps.control.snapshots.take(
        caller.team.id, sandbox_id, name=body.name, memory=body.memory is not False
    )
    return SnapshotOut.of(made, caller.team)


@router.get("/snapshots", tags=["snapshots"], responses=problems())
async def snapshots(
    deps: Given,
    caller: Asking,
    response: Response,
    sandboxID: Annotated[str | None, Query(max_length=128, description="Taken of this sandbox.")] = None,
    name: Annotated[str | None, Query(max_length=256, description="By name or id.")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE)] = PAGE,
    nextToken: Annotated[str | None, Query(max_length=1024)] = None,
) -> list[SnapshotOut]:
    """The team's snapshots, newest first."""
    found = await deps.control.snapshots.page(
        caller.team.id,
        source=sandboxID,
        name=_plain(name) if name else None,
        limit=limit + 1,
        after=decode_cursor(nextToken) if nextToken else None,
    )
    if len(found) > limit:
        last = found[limit - 1]
        response.headers["x-next-token"] = encode_cursor(last.created_at, last.id)
    return [SnapshotOut.of(each, caller.team) for each in found[:limit]]


def _plain(name: str) -> str:
    """A snapshot's name without team and tag."""
    return name.rpartition("/")[2].partition(":")[0]
