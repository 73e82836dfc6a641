"""Records made from records: a sandbox's first row, what its node is asked for, and the error when it does not start."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from sandlot.engine.control.sandbox_request import NewSandbox, request_digest
from sandlot.engine.core.errors import Conflict, EngineError, MachineFailed, Unavailable, WrongState
from sandlot.engine.core.model import Machine, NewMachine, RunningMachine, Sandbox, State, Template

log = logging.getLogger(__name__)


def first_row(
    team_id: str,
    new: NewSandbox,
    template: Template,
    *,
    sandbox_id: str,
    runtime: str,
    node: str,
    now: datetime,
    make_token: Callable[[], str],
) -> Sandbox:
    return Sandbox(
        id=sandbox_id,
        team_id=team_id,
        template_id=template.id,
        template_name=template.name,
        state=State.CREATING,
        runtime=runtime,
        node=node,
        resources=template.resources,
        created_at=now,
        started_at=now,
        end_at=now + timedelta(seconds=new.timeout_s),
        envd_version=template.envd_version,
        build_id=template.build_id,
        metadata=new.metadata,
        env_vars=new.env_vars,
        network=new.network,
        envd_token=make_token() if new.secure else None,
        traffic_token=None if new.network.allow_public_traffic else make_token(),
        timeout_s=new.timeout_s,
        on_timeout=new.on_timeout,
        auto_resume=new.auto_resume,
        pause_memory=new.pause_memory,
        idempotency_key=new.idempotency_key,
        request_digest=request_digest(new) if new.idempotency_key is not None else None,
        source=template.source,
    )


def running_row(row: Sandbox, machine: Machine, now: datetime) -> Sandbox:
    """The row of a sandbox that has just begun to run: its time counts from now."""
    return replace(
        row,
        state=State.RUNNING,
        machine=machine,
        started_at=now,
        end_at=now + timedelta(seconds=row.timeout_s),
    )


def new_machine(row: Sandbox, template: Template) -> NewMachine:
    """What a node is asked for."""
    return NewMachine(
        sandbox_id=row.id,
        runtime=row.runtime,
        template=template,
        resources=row.resources,
        network=row.network,
        envd_token=row.envd_token,
        env_vars=row.env_vars,
        checkpoint=template.checkpoint,
    )


def running_machine(row: Sandbox) -> RunningMachine:
    """What a node is told about a machine that it is to take over."""
    return RunningMachine(sandbox_id=row.id, runtime=row.runtime, network=row.network, envd_token=row.envd_token)


def missing_template(sandbox: Sandbox) -> Template:
    """A stand-in for a template that was deleted since: a checkpoint needs nothing of it but names."""
    return Template(
        id=sandbox.template_id,
        team_id=sandbox.team_id,
        name=sandbox.template_name,
        layers=(),
        build_id="",
        created_at=sandbox.created_at,
        updated_at=sandbox.created_at,
        resources=sandbox.resources,
        envd_version=sandbox.envd_version,
    )


def start_failure(row: Sandbox, error: BaseException, *, within_s: float) -> EngineError:
    """What the caller is told."""
    match error:
        case WrongState() | Conflict():
            return Conflict(f"sandbox {row.id!r} was killed while it was starting")
        case EngineError():
            return error
        case TimeoutError():
            return MachineFailed(f"sandbox {row.id!r} did not start within {within_s:g} seconds")
        case asyncio.CancelledError():
            return Unavailable("the server is stopping; create the sandbox again when it is back")
        case _:
            log.error("sandbox %s could not be started", row.id, exc_info=error)
            return MachineFailed(f"sandbox {row.id!r} could not be started; the server's log has the reason")
