"""The console's routes about sandboxes, templates and keys."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from sandlot.platform.api.console import API
from sandlot.platform.api.console_responses import (
    ConsoleBuild,
    ConsoleKey,
    ConsoleKeyList,
    ConsoleLog,
    ConsoleLogLine,
    ConsoleSandbox,
    ConsoleSandboxList,
    ConsoleTemplate,
    ConsoleTemplateDetail,
    ConsoleTemplateList,
    ConsoleUsage,
    ConsoleUsagePoint,
    ForkedSandbox,
    NewConsoleKey,
)
from sandlot.platform.api.deps import Given, Reader, Writer
from sandlot.platform.api.errors import PROBLEMS
from sandlot.platform.api.requests import Body, Identifier, Timeout
from sandlot.platform.core.errors import Forbidden, NotFound
from sandlot.platform.core.model import Scope
from sandlot.platform.identity.keys import may_see

router = APIRouter(prefix=API, tags=["console"], responses=PROBLEMS)
UnixTime = Annotated[int | None, Query(ge=0, le=2**53, description="Unix time in seconds.")]
Milliseconds = Annotated[int | None, Query(ge=0, le=2**53, description="Unix time in milliseconds.")]
Lines = Annotated[int, Query(ge=1, le=1000)]


class ConsoleTimeout(Body):
    timeout: Timeout = Field(description="Seconds from now.")


class CreateConsoleKey(Body):
    name: Annotated[str, Field(min_length=1, max_length=128)]
    user_id: Identifier | None = Field(None, description="Whose key; for admins. Others make their own.")
    scopes: Annotated[list[Scope], Field(min_length=1)] = [Scope.READ, Scope.WRITE]


@router.get("/sandboxes")
async def sandboxes(deps: Given, caller: Reader) -> ConsoleSandboxList:
    """Sandboxes of the caller's sessions; for admins, all that the default provider has."""
    return ConsoleSandboxList(sandboxes=[ConsoleSandbox.of(one) for one in await deps.console.sandboxes.list(caller)])


@router.get("/sandboxes/{sandbox_id}")
async def sandbox(sandbox_id: str, deps: Given, caller: Reader) -> ConsoleSandbox:
    """One sandbox, by its provider's id or the platform's own (`sbx_…`)."""
    return ConsoleSandbox.of(await deps.console.sandboxes.get(caller, sandbox_id))


@router.post("/sandboxes/{sandbox_id}/pause", status_code=204)
async def pause_sandbox(sandbox_id: str, deps: Given, caller: Writer) -> None:
    """Pause it to disk."""
    await deps.console.sandboxes.pause(caller, sandbox_id)


@router.post("/sandboxes/{sandbox_id}/resume", status_code=204)
async def resume_sandbox(sandbox_id: str, deps: Given, caller: Writer) -> None:
    """Resume it."""
    await deps.console.sandboxes.resume(caller, sandbox_id)


@router.post("/sandboxes/{sandbox_id}/kill", status_code=204)
async def kill_sandbox(sandbox_id: str, deps: Given, caller: Writer) -> None:
    """End it for good, with its files."""
    await deps.console.sandboxes.kill(caller, sandbox_id)


@router.post("/sandboxes/{sandbox_id}/timeout", status_code=204)
async def set_sandbox_timeout(sandbox_id: str, body: ConsoleTimeout, deps: Given, caller: Writer) -> None:
    """Set how long it runs from now."""
    await deps.console.sandboxes.set_timeout(caller, sandbox_id, body.timeout)


@router.post("/sandboxes/{sandbox_id}/fork", status_code=201)
async def fork_sandbox(sandbox_id: str, body: ConsoleTimeout, deps: Given, caller: Writer) -> ForkedSandbox:
    """A second sandbox that begins with this one's state. Not for sandboxes of sessions."""
    return ForkedSandbox(id=await deps.console.sandboxes.fork(caller, sandbox_id, body.timeout))


@router.get("/sandboxes/{sandbox_id}/metrics")
async def sandbox_usage(
    sandbox_id: str, deps: Given, caller: Reader, start: UnixTime = None, end: UnixTime = None
) -> ConsoleUsage:
    """CPU, memory and disk over time."""
    async with deps.console.sandboxes.looking(caller, sandbox_id) as (inspection, known_as):
        points = await inspection.usage(known_as, start, end)
    return ConsoleUsage(points=[ConsoleUsagePoint.of(point) for point in points])


@router.get("/sandboxes/{sandbox_id}/logs")
async def sandbox_log(
    sandbox_id: str, deps: Given, caller: Reader, before: Milliseconds = None, limit: Lines = 500
) -> ConsoleLog:
    """The newest lines of its log up to `before`, oldest first."""
    async with deps.console.sandboxes.looking(caller, sandbox_id) as (inspection, known_as):
        lines = await inspection.logs(known_as, before_ms=before, limit=limit)
    return ConsoleLog(lines=[ConsoleLogLine.of(line) for line in lines])


@router.get("/templates")
async def templates(deps: Given, caller: Reader) -> ConsoleTemplateList:
    """Templates of the default provider."""
    async with deps.console.sandboxes.inspecting() as inspection:
        return ConsoleTemplateList(templates=[ConsoleTemplate.of(one) for one in await inspection.templates()])


@router.get("/templates/{template_id}")
async def template(template_id: str, deps: Given, caller: Reader) -> ConsoleTemplateDetail:
    """A template with its builds."""
    async with deps.console.sandboxes.inspecting() as inspection:
        found = await inspection.template(template_id)
    builds = [ConsoleBuild.of(build) for build in found.builds]
    return ConsoleTemplateDetail(template=ConsoleTemplate.of(found), builds=builds)


@router.get("/templates/{template_id}/builds/{build_id}/logs")
async def build_log(
    template_id: str, build_id: str, deps: Given, caller: Reader, since: Milliseconds = None, limit: Lines = 500
) -> ConsoleLog:
    """Lines of a build's log from `since` on."""
    async with deps.console.sandboxes.inspecting() as inspection:
        lines = await inspection.build_logs(template_id, build_id, since_ms=since or 0, limit=min(limit, 100))
    return ConsoleLog(lines=[ConsoleLogLine.of(line) for line in lines])


@router.get("/keys")
async def keys(deps: Given, caller: Reader) -> ConsoleKeyList:
    """Valid keys of the platform: the caller's own; for admins, all."""
    found = [key for key in await deps.access.keys() if key.revoked_at is None]
    return ConsoleKeyList(
        keys=[ConsoleKey.of(key) for key in found if caller.is_admin or key.user_id == caller.user_id]
    )


@router.post("/keys", status_code=201)
async def create_key(body: CreateConsoleKey, deps: Given, caller: Writer) -> NewConsoleKey:
    """Make a key. Nobody gives a key more than they have."""
    owner = body.user_id or caller.user_id
    if not caller.is_admin and (owner != caller.user_id or not set(body.scopes) <= caller.scopes):
        raise Forbidden("a key for another user, or with more scopes than your own, is for admins to make")
    key, secret = await deps.access.create_key(name=body.name, user_id=owner, scopes=body.scopes)
    return NewConsoleKey(key=ConsoleKey.of(key), secret=secret)


@router.delete("/keys/{key_id}", status_code=204)
async def revoke_key(key_id: str, deps: Given, caller: Writer) -> None:
    """Revoke a key. Browsers that logged in with it are logged out."""
    mine = [key for key in await deps.access.keys() if caller.is_admin or may_see(caller, key.user_id or "")]
    if key_id not in {key.id for key in mine}:
        raise NotFound(f"key {key_id[:80]!r} was not found")
    await deps.access.revoke(key_id)
