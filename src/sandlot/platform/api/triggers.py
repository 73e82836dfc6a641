"""The routes of rules that make tasks: list, create, pause, resume, delete."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from sandlot.platform.api.deps import Given, Reader, Writer
from sandlot.platform.api.errors import PROBLEMS
from sandlot.platform.core.errors import Forbidden, InvalidRequest
from sandlot.platform.core.model import Caller
from sandlot.platform.core.triggers import RuleState, TriggerRule, TriggerWhen, check_rule

router = APIRouter(prefix="/triggers", tags=["triggers"], responses=PROBLEMS)
Name = Annotated[str, Path(max_length=64)]
Texts = Annotated[list[Annotated[str, Field(max_length=4000)]], Field(max_length=50)]


class TriggerRuleBody(BaseModel):
    """A rule: when something happens, make a task."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
    when: TriggerWhen
    repositories: Texts = []
    label: Annotated[str, Field(max_length=100)] = "sandlot"
    branches: Texts = ["*"]
    workflows: Texts = ["*"]
    permission: Literal["read", "triage", "write", "maintain", "admin"] = "write"
    bots: Texts = []
    agent: Annotated[str, Field(max_length=100)] | None = None
    model: Annotated[str, Field(max_length=200)] | None = None
    template: Annotated[str, Field(max_length=200)] | None = None
    command: Annotated[str, Field(max_length=20_000)] | None = None
    prompt: Annotated[str, Field(max_length=20_000)] | None = None
    checks: Texts = []
    seconds: Annotated[int, Field(ge=10, le=604_800)] | None = None
    cost_usd: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    per_day: Annotated[int, Field(ge=1, le=10_000)] = 20
    per_pull: Annotated[int, Field(ge=1, le=100)] = 3
    start: bool = True
    reproduce: Texts = []
    unproven: bool = False
    skip_label: Annotated[str, Field(max_length=100)] = "sandlot-skip"
    schedule: Annotated[str, Field(max_length=200)] | None = None


class TriggerRuleInfo(TriggerRuleBody):
    is_of_file: bool
    paused_at: datetime | None
    paused_reason: str | None
    created_at: datetime | None


class TriggerRuleList(BaseModel):
    triggers: list[TriggerRuleInfo]


def rule_info(state: RuleState) -> TriggerRuleInfo:
    known = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(state.rule).items()}
    return TriggerRuleInfo(
        **known,
        is_of_file=state.is_of_file,
        paused_at=state.paused_at,
        paused_reason=state.paused_reason,
        created_at=state.created_at,
    )


@router.get("")
async def list_rules(deps: Given, caller: Reader) -> TriggerRuleList:
    """In the order in which they are looked through; for admins."""
    _admin(caller)
    return TriggerRuleList(triggers=[rule_info(each) for each in await deps.rules.list()])


@router.post("", status_code=201)
async def create_rule(body: TriggerRuleBody, deps: Given, caller: Writer) -> TriggerRuleInfo:
    """Add one. It comes after those of the configuration file; for admins."""
    _admin(caller)
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in body.model_dump().items()
    }
    rule = TriggerRule(**values)
    try:
        check_rule(rule)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None
    if rule.agent is not None and rule.agent not in deps.agents:
        raise InvalidRequest(f"agent {rule.agent!r} is not known (known: {', '.join(sorted(deps.agents))})")
    return rule_info(await deps.rules.create(rule))


@router.post("/{name}/pause")
async def pause_rule(name: Name, deps: Given, caller: Writer) -> TriggerRuleInfo:
    """It makes no tasks until it is resumed; for admins."""
    _admin(caller)
    return rule_info(await deps.rules.pause(name))


@router.post("/{name}/resume")
async def resume_rule(name: Name, deps: Given, caller: Writer) -> TriggerRuleInfo:
    """What failed before does not count any more; for admins."""
    _admin(caller)
    return rule_info(await deps.rules.resume(name))


@router.delete("/{name}", status_code=204)
async def delete_rule(name: Name, deps: Given, caller: Writer) -> Response:
    """Those of the configuration file change there; for admins."""
    _admin(caller)
    await deps.rules.delete(name)
    return Response(status_code=204)


def _admin(caller: Caller) -> None:
    if not caller.is_admin:
        raise Forbidden("rules are about everybody's repositories; they are for admins")
