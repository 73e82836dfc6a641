"""The console's routes about usage: hours, starts, tokens and cost by day, user, repository and agent; as JSON and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Self

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from sandlot.platform.api.console import API
from sandlot.platform.api.deps import Deps, Given, Reader
from sandlot.platform.api.errors import PROBLEMS
from sandlot.platform.core.errors import InvalidRequest
from sandlot.platform.core.model import Caller
from sandlot.platform.core.usage import UsageAmount, UsageKey

router = APIRouter(prefix=API, tags=["console"], responses=PROBLEMS)
DEFAULT_DAYS, MOST_DAYS = 30, 400
COLUMNS = (
    "day",
    "user_id",
    "repository",
    "agent",
    "hours",
    "vcpu_hours",
    "memory_gib_hours",
    "starts",
    "tasks",
    "tokens_input",
    "tokens_output",
    "tokens_cached",
    "cost_usd",
)
First = Annotated[date | None, Query(description="The first day, in UTC; 30 days before the last, if it is not given.")]
Last = Annotated[date | None, Query(description="The last day; today, if it is not given.")]
By = Annotated[
    list[str] | None,
    Query(
        description="What to add up by: day, user_id, repository, agent; more than one, or with commas.", max_length=8
    ),
]


class ConsoleUsageRow(BaseModel):
    day: str | None
    user_id: str | None = Field(description="None: not by user, or sandboxes that belong to no session.")
    repository: str | None
    agent: str | None
    hours: float = Field(description="Of running sandboxes.")
    vcpu_hours: float
    memory_gib_hours: float
    starts: int
    tasks: int
    tokens_input: int = Field(description="With those that came from the model's cache.")
    tokens_output: int
    tokens_cached: int
    cost_usd: float

    @classmethod
    def of(cls, key: UsageKey, amount: UsageAmount) -> Self:
        return cls(
            day=key.day or None,
            user_id=key.user_id or None,
            repository=key.repository or None,
            agent=key.agent or None,
            hours=round(amount.seconds / 3600, 4),
            vcpu_hours=round(amount.cpu_s / 3600, 4),
            memory_gib_hours=round(amount.memory_gib_s / 3600, 4),
            starts=amount.starts,
            tasks=amount.tasks,
            tokens_input=amount.tokens_input,
            tokens_output=amount.tokens_output,
            tokens_cached=amount.tokens_cached,
            cost_usd=round(amount.cost_usd, 6),
        )


class ConsoleUsageReport(BaseModel):
    start: date
    end: date
    rows: list[ConsoleUsageRow]
    total: ConsoleUsageRow


@router.get("/usage")
async def usage_report(
    deps: Given, caller: Reader, start: First = None, end: Last = None, by: By = None
) -> ConsoleUsageReport:
    """What was used between two days: the caller's own; for admins, everybody's."""
    first, last = _days(start, end)
    rows, total = await _rows(deps, caller, first, last, by or ["day"])
    return ConsoleUsageReport(start=first, end=last, rows=rows, total=total)


@router.get("/usage.csv", response_class=Response, responses={200: {"content": {"text/csv": {}}}})
async def usage_csv(deps: Given, caller: Reader, start: First = None, end: Last = None, by: By = None) -> Response:
    """The same as a table to download."""
    first, last = _days(start, end)
    rows, _ = await _rows(deps, caller, first, last, by or ["day", "user_id", "repository", "agent"])
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(COLUMNS)
    table.writerows([_cell(getattr(row, name)) for name in COLUMNS] for row in rows)
    name = f"sandlot-usage-{first}-{last}.csv"
    headers = {"content-disposition": f'attachment; filename="{name}"', "x-content-type-options": "nosniff"}
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


async def _rows(
    deps: Deps, caller: Caller, first: date, last: date, by: Sequence[str]
) -> tuple[list[ConsoleUsageRow], ConsoleUsageRow]:
    wanted = [name for part in by for name in part.split(",") if name]
    found = await deps.console.usage.rows(
        first_day=first.isoformat(),
        last_day=last.isoformat(),
        by=wanted,
        user_id=None if caller.is_admin else caller.user_id or "",
    )
    total = UsageAmount()
    for _, amount in found:
        total = total.plus(amount)
    return [ConsoleUsageRow.of(*pair) for pair in found], ConsoleUsageRow.of(UsageKey(day=""), total)


def _days(start: date | None, end: date | None) -> tuple[date, date]:
    last = end or datetime.now(UTC).date()
    first = start or last - timedelta(days=min(DEFAULT_DAYS - 1, (last - date.min).days))
    if not 0 <= (last - first).days <= MOST_DAYS:
        raise InvalidRequest(f"usage is for up to {MOST_DAYS} days, the first before the last")
    return first, last


def _cell(value: object) -> object:
    """A name that a spreadsheet would take for a formula is made plain text."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return "" if value is None else value
