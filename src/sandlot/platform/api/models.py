"""The routes about models: the gateway below `/models`, what calls cost, and budgets."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from sandlot.platform.api.audit import note
from sandlot.platform.api.deps import Given, Reader, Writer
from sandlot.platform.api.errors import PROBLEMS
from sandlot.platform.core.models import NANO, BudgetCap, BudgetScope, UsageQuery, UsageTotal

PATH = "/models/"
router = APIRouter(tags=["models"], responses=PROBLEMS)


class UsageRow(BaseModel):
    group: dict[str, str]
    calls: int
    input_tokens: int = Field(description="With those that came from the cache.")
    output_tokens: int
    cached_tokens: int
    cost_usd: float
    unpriced_calls: int = Field(
        description="Calls of models whose price is unknown. Their cost is a guess, and a high one."
    )
    estimated_calls: int = Field(description="Calls that ended before they said what they used.")


class UsageReport(BaseModel):
    usage: list[UsageRow]


class BudgetLimit(BaseModel):
    model_config = ConfigDict(extra="forbid")

    cost_usd: Annotated[float, Field(ge=0, le=1_000_000)] | None = None
    tokens: Annotated[int, Field(ge=0, le=1 << 50)] | None = None


class BudgetInfo(BaseModel):
    scope: BudgetScope
    subject: str
    period: str | None = Field(description="A month, such as 2026-11.")
    limit: BudgetLimit
    spent_usd: float
    spent_tokens: int
    calls: int
    share: float = Field(description="How much of it is spent; 1 is all.")


class BudgetList(BaseModel):
    budgets: list[BudgetInfo]


class ModelEndpointInfo(BaseModel):
    name: str
    api: str
    models: list[str]
    aliases: dict[str, str]
    has_key: bool


class ModelEndpointList(BaseModel):
    endpoints: list[ModelEndpointInfo]


@router.get("/usage")
async def usage(
    deps: Given,
    caller: Reader,
    by: Annotated[str, Query(max_length=100, description="Comma-separated: user, task, model, day, ...")] = "model",
    user_id: Annotated[str | None, Query(max_length=256)] = None,
    task: Annotated[str | None, Query(max_length=64)] = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> UsageReport:
    """What calls of models used and cost, added up. Users see theirs, admins all."""
    wanted = UsageQuery(
        by=tuple(by.split(",")), user_id=user_id, task=task, since=_aware(since), until=_aware(until), limit=limit
    )
    return UsageReport(usage=[_row(total) for total in await deps.models.usage.totals(caller, wanted)])


@router.get("/budgets")
async def budgets(
    deps: Given, caller: Reader, user_id: Annotated[str | None, Query(max_length=256)] = None
) -> BudgetList:
    """What may be spent this month, and what is spent."""
    views = await deps.models.usage.budgets(caller, user_id)
    return BudgetList(
        budgets=[
            BudgetInfo(
                scope=view.key.scope,
                subject=view.key.subject,
                period=view.key.period or None,
                limit=BudgetLimit(cost_usd=view.cap.cost_usd, tokens=view.cap.tokens),
                spent_usd=_dollars(view.spent.cost_nano),
                spent_tokens=view.spent.tokens,
                calls=view.spent.calls,
                share=round(view.cap.share(view.spent), 4),
            )
            for view in views
        ]
    )


Subject = Annotated[str, Path(max_length=256, description="A user or a session; * for everybody.")]


@router.put("/budgets/{scope}/{subject}", status_code=204)
async def set_budget(
    scope: BudgetScope, subject: Subject, body: BudgetLimit, request: Request, deps: Given, caller: Writer
) -> Response:
    """Set a limit instead of the configuration's. Needs an admin key."""
    note(request, cost_usd=body.cost_usd, tokens=body.tokens)
    cap = BudgetCap(cost_usd=body.cost_usd, tokens=body.tokens)
    await deps.models.usage.set_cap(caller, scope, subject, cap)
    return Response(status_code=204)


@router.delete("/budgets/{scope}/{subject}", status_code=204)
async def reset_budget(scope: BudgetScope, subject: Subject, deps: Given, caller: Writer) -> Response:
    """The configuration's limit counts again. Needs an admin key."""
    await deps.models.usage.set_cap(caller, scope, subject, None)
    return Response(status_code=204)


@router.get("/platform/models")
async def endpoints(deps: Given, caller: Reader) -> ModelEndpointList:
    """The endpoints of the model gateway. Their keys are never shown."""
    return ModelEndpointList(
        endpoints=[
            ModelEndpointInfo(
                name=each.name,
                api=each.api.value,
                models=list(each.models),
                aliases=dict(each.aliases),
                has_key=each.key is not None,
            )
            for each in deps.models.gateway.router.endpoints
        ]
    )


def _row(total: UsageTotal) -> UsageRow:
    return UsageRow(
        group=dict(total.group),
        calls=total.calls,
        input_tokens=total.input,
        output_tokens=total.output,
        cached_tokens=total.cached,
        cost_usd=_dollars(total.cost_nano),
        unpriced_calls=total.unpriced,
        estimated_calls=total.estimated,
    )


def _dollars(nano: int) -> float:
    return round(nano / NANO, 9)


def _aware(at: datetime | None) -> datetime | None:
    return at if at is None or at.tzinfo is not None else at.astimezone()
