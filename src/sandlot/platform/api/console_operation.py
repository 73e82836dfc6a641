"""The console's routes about the platform itself: the queue, how it is set up, and what the doctor finds."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from urllib.parse import urlsplit

from fastapi import APIRouter
from pydantic import BaseModel, Field

from sandlot.platform.api.console import API
from sandlot.platform.api.deps import Given, Reader
from sandlot.platform.api.errors import PROBLEMS
from sandlot.platform.core.model import Scope, WebhookBacklog
from sandlot.platform.identity.keys import may_see, require

router = APIRouter(prefix=API, tags=["console"], responses=PROBLEMS)


class QueuedSession(BaseModel):
    session_id: str = Field(description="The platform's id: `sbx_…`.")
    user_id: str
    name: str
    position: int = Field(description="1 is next.")
    reason: str | None = Field(description="Why it waits; None: it starts next.")
    since: datetime


class ConsoleQueue(BaseModel):
    running: int = Field(description="Of all users.")
    limit: int
    waiting: list[QueuedSession] = Field(description="The caller's own; for admins, all.")


class ConsoleFinding(BaseModel):
    name: str
    ok: bool
    state: str = Field(description="ok, warn or fail.")
    problem: str | None
    fix: str | None
    detail: str


class ConsoleDoctor(BaseModel):
    findings: list[ConsoleFinding]


class ConsoleProvider(BaseModel):
    name: str
    kind: str
    is_default: bool
    problem: str | None = Field(description="Why it cannot be used just now.")


class ConsoleLimits(BaseModel):
    running: int
    running_per_user: int
    sessions_per_user: int
    queue_length: int
    queue_timeout: int


class ConsolePolicy(BaseModel):
    idle_pause: int
    max_age: int
    on_timeout: str
    keep_events: int
    keep_ended: int


class ConsoleWebhook(BaseModel):
    name: str
    host: str = Field(description="Not the whole address: there may be a secret in it.")
    types: list[str] | None
    waiting: int = Field(description="Events that are still to be sent.")
    given_up: int = Field(description="Events that were tried for a day, or refused for good.")
    problem: str | None = Field(description="Why the newest of them did not arrive.")


class ConsoleSettings(BaseModel):
    version: str
    providers: list[ConsoleProvider]
    limits: ConsoleLimits
    policy: ConsolePolicy
    webhooks: list[ConsoleWebhook]


@router.get("/queue")
async def queue(deps: Given, caller: Reader) -> ConsoleQueue:
    """How many sandboxes run, and who waits for one, and why."""
    operation = deps.console.operation
    waiting = [
        QueuedSession(
            session_id=one.session.id,
            user_id=one.session.user_id,
            name=one.session.session_id,
            position=one.position,
            reason=one.reason,
            since=one.session.queued_at or one.session.created_at,
        )
        for one in await operation.queue.positions()
        if may_see(caller, one.session.user_id)
    ]
    return ConsoleQueue(running=await operation.queue.active(), limit=operation.limits.running, waiting=waiting)


@router.get("/doctor")
async def doctor(deps: Given, caller: Reader) -> ConsoleDoctor:
    """What the doctor finds on the host of this server, with what to do about it. For admins."""
    require(caller, Scope.ADMIN)
    return ConsoleDoctor(
        findings=[
            ConsoleFinding(
                name=one.name,
                ok=one.state != "fail",
                state=one.state,
                problem=one.detail if one.state != "ok" else None,
                fix=one.fix,
                detail=one.detail,
            )
            for one in await deps.console.operation.doctor()
        ]
    )


@router.get("/settings")
async def settings(deps: Given, caller: Reader) -> ConsoleSettings:
    """How the platform is set up, without secrets. For admins."""
    require(caller, Scope.ADMIN)
    operation = deps.console.operation
    limits, policy = operation.limits, operation.policy
    backlog = await operation.outbox.backlog()
    return ConsoleSettings(
        version=deps.version,
        providers=[
            ConsoleProvider(
                name=name,
                kind=kind,
                is_default=name == operation.default_provider,
                problem=operation.providers.problem(name),
            )
            for name, kind in operation.provider_kinds.items()
        ],
        limits=ConsoleLimits(
            running=limits.running,
            running_per_user=limits.running_per_user,
            sessions_per_user=limits.sessions_per_user,
            queue_length=limits.queue_length,
            queue_timeout=limits.queue_timeout_s,
        ),
        policy=ConsolePolicy(
            idle_pause=policy.idle_pause_s,
            max_age=policy.max_age_s,
            on_timeout=policy.on_timeout.value,
            keep_events=policy.keep_events_s,
            keep_ended=policy.keep_ended_s,
        ),
        webhooks=[
            ConsoleWebhook(
                name=one.name,
                host=urlsplit(one.url).hostname or "",
                types=sorted(one.types) if one.types is not None else None,
                **asdict(backlog.get(one.name, WebhookBacklog())),
            )
            for one in operation.webhooks
        ],
    )
