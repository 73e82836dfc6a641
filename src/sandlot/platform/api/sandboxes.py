"""The routes about sandboxes as a whole: create, find, timeout, ports, tools, delete."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from sandlot.platform.api import responses
from sandlot.platform.api.cursors import cursor_of, parse_cursor
from sandlot.platform.api.deps import Given, Reader, Writer
from sandlot.platform.api.errors import PROBLEMS
from sandlot.platform.api.requests import CreateSandbox, ExposePort, Identifier, SandboxBody, SetTimeout
from sandlot.platform.core.model import Session, SessionStatus
from sandlot.platform.sessions.service import SessionRequest, SessionTarget

router = APIRouter(prefix="/sandboxes", tags=["sandboxes"], responses=PROBLEMS)


@router.post("/create", status_code=201, responses={202: {"model": responses.SandboxInfo, "description": "It waits."}})
async def create(body: CreateSandbox, deps: Given, caller: Writer, response: Response) -> responses.SandboxInfo:
    """Your sandbox: a new one, or the one of this `session_id`. 202 if it is still queued after `wait` seconds."""
    request = SessionRequest(
        user_id=body.user_id,
        session_id=body.session_id,
        template_id=body.template_id,
        agent_type=body.agent_type,
        provider=body.provider,
        backend=body.backend,
        capabilities=body.capabilities,
        envs=body.envs,
        metadata=body.metadata,
        timeout_s=body.timeout,
    )
    session = await deps.sessions.create(caller, request, body.wait)
    return await _answer(deps, session, response)


@router.post("/connect", responses={202: {"model": responses.SandboxInfo, "description": "It waits."}})
async def connect(body: SandboxBody, deps: Given, caller: Writer, response: Response) -> responses.SandboxInfo:
    """Make sure that it runs: a paused one is resumed."""
    session = await deps.sessions.connect(body.target(caller))
    return await _answer(deps, session, response)


@router.post("/timeout")
async def set_timeout(body: SetTimeout, deps: Given, caller: Writer) -> responses.SandboxInfo:
    """Set its timeout: it runs for so many seconds from now."""
    return responses.sandbox(await deps.sessions.set_timeout(body.target(caller), body.timeout))


@router.post("/delete")
async def delete(body: SandboxBody, deps: Given, caller: Writer) -> responses.SandboxInfo:
    """End it for good. In the queue, this is how to cancel."""
    return responses.sandbox(await deps.sessions.delete(body.target(caller)))


@router.post("/expose-port")
async def expose_port(body: ExposePort, deps: Given, caller: Writer) -> responses.PortInfo:
    """The address at which a port of it is reached."""
    async with deps.sessions.using(body.target(caller)) as handle:
        return responses.PortInfo(url=handle.box.url(body.port))


@router.post("/tools")
async def tools(body: SandboxBody, deps: Given, caller: Writer) -> responses.ToolsAccess:
    """Where the MCP tools inside it are, and a token for them. 409 if its template has none."""
    found = await deps.tools.open(body.target(caller))
    return responses.ToolsAccess(url=found.url, token=found.token)


@router.get("/status")
async def status(
    deps: Given,
    caller: Reader,
    sandbox_id: Annotated[Identifier, Query()],
    user_id: Annotated[Identifier | None, Query()] = None,
) -> responses.SandboxInfo:
    """Its state. A paused sandbox stays paused."""
    session = await deps.sessions.find(SessionTarget(caller=caller, sandbox_id=sandbox_id, user_id=user_id))
    return responses.sandbox(session, await deps.sessions.queue_position(session))


@router.get("/list")
async def list_sandboxes(
    deps: Given,
    caller: Reader,
    user_id: Annotated[Identifier | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    after: Annotated[str | None, Query(max_length=300)] = None,
) -> responses.SandboxPage:
    """A user's sandboxes, newest first."""
    found = await deps.sessions.list(caller, user_id, limit, parse_cursor(after) if after else None)
    more = cursor_of(found[-1].created_at, found[-1].id) if len(found) == limit else None
    return responses.SandboxPage(sandboxes=[responses.sandbox(session) for session in found], next=more)


async def _answer(deps: Given, session: Session, response: Response) -> responses.SandboxInfo:
    if session.status is not SessionStatus.RUNNING:
        response.status_code = 202
    return responses.sandbox(session, await deps.sessions.queue_position(session))
