"""What can be seen of a sandbox from outside: its usage over time and its logs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Query

from sandlot.engine.api.deps import Asking, Deps, Given, SandboxId
from sandlot.engine.api.errors import problems
from sandlot.engine.api.responses import (
    LEVELS,
    Level,
    LogEntryOut,
    LogLine,
    Logs,
    LogsV2,
    Metric,
    Metrics,
    isolation_of,
    level_of,
)
from sandlot.engine.core.errors import EngineError, InvalidRequest, NotFound
from sandlot.engine.core.ids import SANDBOX_ID
from sandlot.engine.core.model import LogEntry, Sandbox, State

router = APIRouter(tags=["sandboxes"])

MOST_IDS = 100
LOG_PAGE = 1000
UnixTime = Annotated[int | None, Query(ge=0, le=2**53, description="Unix time in seconds.")]
Milliseconds = Annotated[int | None, Query(ge=0, le=2**53, description="Unix time in milliseconds.")]


@router.get("/sandboxes/metrics", responses=problems())
async def metrics_of_many(
    deps: Given,
    caller: Asking,
    sandbox_ids: Annotated[list[str], Query(description="Ids with commas between them.", max_length=MOST_IDS)],
) -> Metrics:
    """The newest sample of each of these sandboxes; ids that are not the team's are left out."""
    ids = list(dict.fromkeys(part.strip() for text in sandbox_ids for part in text.split(",") if part.strip()))
    if not ids or len(ids) > MOST_IDS:
        raise InvalidRequest(f"sandbox_ids must name 1 to {MOST_IDS} sandboxes")

    async def newest(sandbox_id: str) -> tuple[str, Metric] | None:
        try:
            sandbox = await deps.control.lookup.get(caller.team.id, sandbox_id)
        except NotFound:
            return None
        usage = await deps.history.latest(sandbox, deps.clock())
        return None if usage is None else (sandbox.id, Metric.of(usage))

    known = [sandbox_id for sandbox_id in ids if SANDBOX_ID.fullmatch(sandbox_id.partition("-")[0])]
    found = await asyncio.gather(*map(newest, known))
    return Metrics(sandboxes=dict(pair for pair in found if pair is not None))


@router.get("/sandboxes/{sandboxID}/metrics", responses=problems(404))
async def metrics(
    sandbox_id: SandboxId, deps: Given, caller: Asking, start: UnixTime = None, end: UnixTime = None
) -> list[Metric]:
    """What the sandbox used, measured from outside every few seconds; also of one that has ended. The older, the coarser."""
    sandbox = await deps.control.lookup.get(caller.team.id, sandbox_id, include_ended=True)
    return [Metric.of(usage) for usage in await deps.history.samples(sandbox, deps.clock(), start, end)]


@router.get("/sandboxes/{sandboxID}/logs", responses=problems(404))
async def logs(
    sandbox_id: SandboxId,
    deps: Given,
    caller: Asking,
    start: Milliseconds = None,
    limit: Annotated[int, Query(ge=0, le=100_000)] = LOG_PAGE,
) -> Logs:
    """The oldest entries since `start`, also of a sandbox that has ended."""
    entries = [entry for entry in await _entries(deps, caller, sandbox_id) if _at_ms(entry) >= (start or 0)][:limit]
    return Logs(logs=[LogLine.of(entry) for entry in entries], logEntries=[LogEntryOut.of(entry) for entry in entries])


@router.get("/v2/sandboxes/{sandboxID}/logs", responses=problems(404))
async def logs_page(
    sandbox_id: SandboxId,
    deps: Given,
    caller: Asking,
    cursor: Milliseconds = None,
    limit: Annotated[int, Query(ge=0, le=LOG_PAGE)] = LOG_PAGE,
    direction: Annotated[Literal["forward", "backward"], Query(description="Oldest or newest first.")] = "forward",
    level: Annotated[Level | None, Query(description="Leave out entries below this level.")] = None,
    search: Annotated[str | None, Query(max_length=256, description="Text that the message contains.")] = None,
) -> LogsV2:
    """Entries from `cursor` on, in one direction."""
    entries = await _entries(deps, caller, sandbox_id)
    if direction == "backward":
        entries = [entry for entry in reversed(entries) if cursor is None or _at_ms(entry) <= cursor]
    elif cursor is not None:
        entries = [entry for entry in entries if _at_ms(entry) >= cursor]
    wanted = LEVELS[LEVELS.index(level) :] if level else LEVELS
    kept = [entry for entry in entries if level_of(entry) in wanted and (not search or search in entry.message)]
    return LogsV2(logs=[LogEntryOut.of(entry) for entry in kept[:limit]])


async def _entries(deps: Deps, caller: Asking, sandbox_id: str) -> Sequence[LogEntry]:
    """The daemon's entries and the sandbox's own story, in order of time."""
    sandbox = await deps.control.lookup.get(caller.team.id, sandbox_id, include_ended=True)
    try:
        inside = await deps.control.nodes.of(sandbox).machines.logs(sandbox.id)
    except EngineError:  # a machine that is stopping cannot be read; its story can
        inside = ()
    return sorted((*_story(sandbox), *inside), key=lambda entry: entry.at)


def _story(sandbox: Sandbox) -> list[LogEntry]:
    fields = {"logger": "sandlot", "runtime": sandbox.runtime, "isolation": isolation_of(sandbox) or ""}
    story = [LogEntry(at=sandbox.created_at, message=f"creating from {sandbox.template_name}", fields=fields)]
    if sandbox.machine is not None:
        story.append(LogEntry(at=sandbox.started_at, message="running", fields=fields))
    if sandbox.state is State.ENDED and sandbox.ended_at is not None:
        reason = sandbox.end_reason or "ended"
        level = "info" if reason in ("killed", "timeout") else "error"
        story.append(LogEntry(at=sandbox.ended_at, message=f"ended: {reason}", level=level, fields=fields))
    return story


def _at_ms(entry: LogEntry) -> int:
    return int(entry.at.timestamp() * 1000)
