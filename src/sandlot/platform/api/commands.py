"""The route that runs commands: to their end, in the background, or streamed."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

from fastapi import APIRouter, Request, Response

from sandlot.platform.api.deps import Deps, Given, Writer
from sandlot.platform.api.errors import PROBLEMS, status_of
from sandlot.platform.api.requests import RunCommand
from sandlot.platform.api.responses import CommandResult
from sandlot.platform.api.streams import Stream
from sandlot.platform.core.errors import PlatformError
from sandlot.platform.sessions.commands import Command, CommandEnded, CommandEvent, CommandOutput, CommandStarted
from sandlot.platform.sessions.service import SessionTarget

router = APIRouter(prefix="/sandboxes", tags=["commands"], responses=PROBLEMS)
SSE, LINES = "text/event-stream", "application/x-ndjson"


@router.post("/run-command", response_model=CommandResult)
async def run_command(body: RunCommand, request: Request, deps: Given, caller: Writer) -> CommandResult | Response:
    """Run a command. However it ends is a result; an error means that it could not be run."""
    command = Command(command=body.command, cwd=body.cwd, envs=body.envs, user=body.user, timeout_s=body.timeout)
    if body.stream:
        return await _streamed(deps, body.target(caller), command, SSE in request.headers.get("accept", ""))
    if body.background:
        start = deps.background.start if body.keep_awake else deps.commands.background
        started = await start(body.target(caller), command)
        return CommandResult(
            output="", stdout="", stderr="", exit_code=None, command_id=started.command_id, pid=started.pid
        )
    outcome = await deps.commands.run(body.target(caller), command)
    return CommandResult(
        output=outcome.output,
        stdout=outcome.stdout,
        stderr=outcome.stderr,
        exit_code=outcome.exit_code,
        timed_out=outcome.timed_out,
        truncated=outcome.truncated,
    )


async def _streamed(deps: Deps, target: SessionTarget, command: Command, as_sse: bool) -> Response:
    events = deps.commands.stream(target, command)
    first = await anext(events)  # raises while a plain failure can still be answered

    async def lines() -> AsyncGenerator[bytes]:
        yield _line(_shown(first), as_sse)
        try:
            async for event in events:
                yield _line(_shown(event), as_sse)
        except PlatformError as error:
            yield _line({"type": "error", "code": status_of(error), "message": str(error)}, as_sse)

    return Stream(lines(), SSE if as_sse else LINES)


def _shown(event: CommandEvent) -> dict[str, Any]:
    match event:
        case CommandStarted(command_id, pid):
            return {"type": "started", "command_id": command_id, "pid": pid}
        case CommandOutput(channel, text):
            return {"type": channel, "data": text}
        case CommandEnded(exit_code, timed_out):
            return {"type": "ended", "exit_code": exit_code, "timed_out": timed_out}


def _line(record: dict[str, Any], as_sse: bool) -> bytes:
    text = json.dumps(record, separators=(",", ":"))
    return f"event: {record['type']}\ndata: {text}\n\n".encode() if as_sse else f"{text}\n".encode()
