"""The sandbox routes of both SDK generations: create, find, keep alive, change, end."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Literal
from urllib.parse import parse_qsl, unquote

from fastapi import APIRouter, Body, Header, Path, Query, Response

from sandlot.engine.api.deps import Asking, Given, SandboxId
from sandlot.engine.api.errors import problems
from sandlot.engine.api.requests import Create, LegacyCreate, NetworkUpdate, Refresh, Timeout
from sandlot.engine.api.responses import Detail, Listed, PortGrantOut, SandboxOut, shown
from sandlot.engine.control.port_grants import PARAMETER
from sandlot.engine.control.template_lookup import PATIENCE_S
from sandlot.engine.core.errors import InvalidRequest
from sandlot.engine.core.model import ENVD_PORT, State

router = APIRouter(tags=["sandboxes"])

STATES = {"running": (State.RUNNING, State.CAPTURING), "paused": (State.PAUSING, State.PAUSED, State.RESUMING)}
PAGE = 100
SHORTEST_REFRESH_S = 15
LEGACY_TIMEOUT_S = 15
DEFAULT_TIMEOUT_S = 300
MOST_FILTERS = 64
SDK_PATIENCE_S = 45.0
_MODERN = re.compile(r"e2b-(python|js)-sdk/([2-9]|\d{2,})\.")

Key = Annotated[
    str | None, Header(alias="Idempotency-Key", pattern="^[A-Za-z0-9_-]{1,255}$", description="Repeats give the same.")
]
Agent = Annotated[str | None, Header(alias="User-Agent", include_in_schema=False)]
MetadataFilter = Annotated[
    str | None, Query(max_length=8192, description="`k=v&k2=v2`, each key and value URL-encoded; all must match.")
]


def patience(agent: str | None) -> float:
    """How long the caller waits for an answer, by its kind: SDKs for a minute since 2.0, and for half of it before."""
    return SDK_PATIENCE_S if agent and _MODERN.match(agent) else PATIENCE_S


@router.post("/v2/sandboxes", status_code=201, responses=problems(403, 404, 409), response_model_exclude_none=True)
async def create(
    body: Create, deps: Given, caller: Asking, response: Response, key: Key = None, agent: Agent = None
) -> SandboxOut:
    """Make a sandbox from a template; it answers when this returns."""
    made = await deps.control.creation.create(caller.team.id, body.wanted(key), patience_s=patience(agent))
    return shown(made, deps.domain, response)


@router.post("/sandboxes", status_code=201, responses=problems(403, 404, 409), response_model_exclude_none=True)
async def create_legacy(
    body: LegacyCreate, deps: Given, caller: Asking, response: Response, key: Key = None, agent: Agent = None
) -> SandboxOut:
    """Make a sandbox, as older SDKs ask for it."""
    wanted = body.wanted(key, secure=bool(body.secure), default_timeout_s=LEGACY_TIMEOUT_S)
    made = await deps.control.creation.create(caller.team.id, wanted, patience_s=patience(agent))
    return shown(made, deps.domain, response)


@router.get("/sandboxes/{sandboxID}", responses=problems(404), response_model_exclude_none=True)
async def get(sandbox_id: SandboxId, deps: Given, caller: Asking, response: Response) -> Detail:
    """All there is to know about a sandbox."""
    sandbox = await deps.control.lookup.get(caller.team.id, sandbox_id)
    shown(sandbox, deps.domain, response)
    return Detail.detail(sandbox, deps.domain)


@router.delete("/sandboxes/{sandboxID}", status_code=204, responses=problems(404))
async def kill(sandbox_id: SandboxId, deps: Given, caller: Asking) -> None:
    """End a sandbox, running or paused; nothing of it is left."""
    await deps.control.ending.kill(caller.team.id, sandbox_id)


@router.get("/v2/sandboxes", responses=problems(), response_model_exclude_none=True)
async def list_page(
    deps: Given,
    caller: Asking,
    response: Response,
    metadata: MetadataFilter = None,
    state: Annotated[list[str] | None, Query(max_length=10, description="`running`, `paused`, or both.")] = None,
    order: Annotated[Literal["asc", "desc"], Query(description="By time of start.")] = "desc",
    startedAfter: Annotated[datetime | None, Query(description="Started at or after this time.")] = None,
    template: Annotated[str | None, Query(max_length=256, description="A template's id or name.")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE)] = PAGE,
    nextToken: Annotated[str | None, Query(max_length=1024, description="`x-next-token` of the page before.")] = None,
) -> list[Listed]:
    """One page of the team's sandboxes. `x-next-token` is there when more follow."""
    page = await deps.control.lookup.list(
        caller.team.id,
        states=_states(state),
        metadata=_filters(metadata),
        template=_text("template", template),
        started_after=_moment(startedAfter),
        descending=order == "desc",
        limit=limit,
        token=nextToken or None,
    )
    if page.next_token is not None:
        response.headers["X-Next-Token"] = page.next_token
    response.headers["X-Total-Running"] = str(await deps.control.lookup.count(caller.team.id))
    return [Listed.of(sandbox) for sandbox in page.sandboxes]


@router.get("/sandboxes", responses=problems(), response_model_exclude_none=True)
async def list_running(deps: Given, caller: Asking, metadata: MetadataFilter = None) -> list[Listed]:
    """Every running sandbox of the team, as older SDKs ask for them."""
    wanted, found, token = _filters(metadata), [], None
    while True:
        page = await deps.control.lookup.list(
            caller.team.id, states=(State.RUNNING,), metadata=wanted, limit=1000, token=token
        )
        found += [Listed.of(sandbox) for sandbox in page.sandboxes]
        token = page.next_token
        if token is None:
            return found


def _states(given: list[str] | None) -> tuple[State, ...]:
    names = {name.strip() for part in given or ("running,paused",) for name in part.split(",") if name.strip()}
    if not names or names - STATES.keys():
        raise InvalidRequest("state must be running, paused, or both with a comma between them")
    return tuple(state for name in sorted(names) for state in STATES[name])


def _filters(text: str | None) -> dict[str, str] | None:
    """SDKs encode keys and values twice: once by themselves, once as a query inside the query."""
    if not text:
        return None
    pairs = parse_qsl(text, keep_blank_values=True, errors="replace")
    filters = {unquote(name, errors="replace"): unquote(value, errors="replace") for name, value in pairs}
    if not filters or len(filters) > MOST_FILTERS or any("\x00" in part for pair in filters.items() for part in pair):
        raise InvalidRequest(f"metadata must be up to {MOST_FILTERS} pairs like user=abc&app=prod, URL-encoded")
    return filters


def _text(name: str, value: str | None) -> str | None:
    if value is not None and "\x00" in value:
        raise InvalidRequest(f"{name} must not contain a null character")
    return value or None


def _moment(value: datetime | None) -> datetime | None:
    if value is None:
        return None
    try:
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError as error:
        raise InvalidRequest("startedAfter is not a time this server can work with") from error


@router.post("/sandboxes/{sandboxID}/timeout", status_code=204, responses=problems(404, 409))
async def set_timeout(sandbox_id: SandboxId, body: Timeout, deps: Given, caller: Asking) -> None:
    """Set when the sandbox ends, sooner or later than before."""
    await deps.control.changes.set_timeout(caller.team.id, sandbox_id, body.timeout)


@router.post("/sandboxes/{sandboxID}/refreshes", status_code=204, responses=problems(404, 409))
async def refresh(
    sandbox_id: SandboxId, deps: Given, caller: Asking, body: Annotated[Refresh | None, Body()] = None
) -> None:
    """Put the end of the sandbox off; never brings it nearer."""
    asked = body.duration if body is not None and body.duration is not None else 0
    await deps.control.changes.refresh(caller.team.id, sandbox_id, max(asked, SHORTEST_REFRESH_S))


@router.put("/sandboxes/{sandboxID}/network", status_code=204, responses=problems(403, 404, 409))
async def set_network(sandbox_id: SandboxId, body: NetworkUpdate, deps: Given, caller: Asking) -> None:
    """Replace what the sandbox may reach, at once."""
    await deps.control.changes.set_network(caller.team.id, sandbox_id, body.policy())


@router.post("/sandboxes/{sandboxID}/ports/{port}/grants", status_code=201, responses=problems(404))
async def grant(
    sandbox_id: SandboxId, port: Annotated[int, Path(ge=1, le=65535)], deps: Given, caller: Asking
) -> PortGrantOut:
    """Let one browser into a protected port: the grant goes into the port's address, once, within a minute. Sandlot's own."""
    sandbox = await deps.control.lookup.get(caller.team.id, sandbox_id)
    made = deps.grants.issue(sandbox, port)
    is_needed = port != ENVD_PORT and not sandbox.network.allow_public_traffic
    return PortGrantOut(parameter=PARAMETER, grant=made.token, expiresAt=made.ends_at, needed=is_needed)
