"""Calls of models, what budgets have spent, and limits that were set by hand, in the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import ColumnElement, Integer, cast, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from sandlot.platform.core.events import Event
from sandlot.platform.core.models import (
    BudgetCap,
    BudgetKey,
    BudgetScope,
    ModelCall,
    Spent,
    UsageQuery,
    UsageTotal,
)
from sandlot.platform.store.database import Database
from sandlot.platform.store.events import Route, append
from sandlot.platform.store.schema import budget_caps, budget_spending, model_calls

_calls = model_calls.c
_GROUPS: Mapping[str, ColumnElement[str]] = {
    "user": _calls.user_id,
    "task": _calls.task,
    "session": _calls.session,
    "agent": _calls.agent,
    "model": _calls.model,
    "endpoint": _calls.endpoint,
    "repository": _calls.repository,
    "day": _calls.day,
    "month": func.substr(_calls.day, 1, 7),
}


class SqlModelCalls:
    def __init__(self, database: Database, route: Route = lambda _: ()) -> None:
        self._database, self._route = database, route

    async def add(self, call: ModelCall, budgets: Sequence[BudgetKey], events: Sequence[Event]) -> None:
        client = call.client
        row = {
            "at": call.at,
            "day": call.at.strftime("%Y-%m-%d"),
            "user_id": client.user_id,
            "task": client.id if client.scope is BudgetScope.TASK else None,
            "session": client.id if client.scope is BudgetScope.SESSION else None,
            "agent": client.agent,
            "repository": client.repository,
            "endpoint": call.endpoint,
            "model": call.model,
            "status": call.status,
            "input": call.tokens.input,
            "output": call.tokens.output,
            "cached": call.tokens.cached,
            "cache_write": call.tokens.cache_write,
            "cost_nano": call.cost_nano,
            "priced": call.priced,
            "estimated": call.estimated,
            "milliseconds": round(call.seconds * 1000),
        }
        async with self._database.write("count a call of a model") as connection:
            await connection.execute(insert(model_calls), row)
            make = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
            spending = budget_spending.c
            for budget in budgets:
                added = make(budget_spending).values(
                    scope=budget.scope.value,
                    subject=budget.subject,
                    period=budget.period,
                    cost_nano=call.cost_nano,
                    tokens=call.tokens.total,
                    calls=1,
                )
                await connection.execute(
                    added.on_conflict_do_update(
                        index_elements=["scope", "subject", "period"],
                        set_={
                            "cost_nano": spending.cost_nano + call.cost_nano,
                            "tokens": spending.tokens + call.tokens.total,
                            "calls": spending.calls + 1,
                        },
                    )
                )
            await append(connection, self._route, events)

    async def spent(self, budget: BudgetKey) -> Spent:
        rows = budget_spending.c
        query = select(rows.cost_nano, rows.tokens, rows.calls).where(
            rows.scope == budget.scope.value, rows.subject == budget.subject, rows.period == budget.period
        )
        async with self._database.read("read what a budget has spent") as connection:
            row = (await connection.execute(query)).one_or_none()
        return Spent(cost_nano=row[0], tokens=row[1], calls=row[2]) if row is not None else Spent()

    async def totals(self, wanted: UsageQuery) -> Sequence[UsageTotal]:
        groups = [_GROUPS[name] for name in wanted.by]
        sums = [func.count(), *(func.sum(c) for c in (_calls.input, _calls.output, _calls.cached, _calls.cost_nano))]
        guesses = [
            func.sum(1 - cast(_calls.priced, Integer)),
            func.sum(cast(_calls.estimated, Integer)),
        ]
        conditions: list[ColumnElement[bool]] = []
        if wanted.user_id is not None:
            conditions.append(_calls.user_id == wanted.user_id)
        if wanted.task is not None:
            conditions.append(_calls.task == wanted.task)
        if wanted.since is not None:
            conditions.append(_calls.at >= wanted.since)
        if wanted.until is not None:
            conditions.append(_calls.at < wanted.until)
        query = (
            select(*groups, *sums, *guesses)
            .where(*conditions)
            .group_by(*groups)
            .order_by(func.sum(_calls.cost_nano).desc())
            .limit(wanted.limit)
        )
        count = len(groups)
        async with self._database.read("add up what models cost") as connection:
            rows = (await connection.execute(query)).all()
        return [
            UsageTotal(
                group={name: value or "" for name, value in zip(wanted.by, row[:count], strict=True)},
                calls=int(row[count]),
                input=int(row[count + 1]),
                output=int(row[count + 2]),
                cached=int(row[count + 3]),
                cost_nano=int(row[count + 4]),
                unpriced=int(row[count + 5]),
                estimated=int(row[count + 6]),
            )
            for row in rows
        ]

    async def cap(self, scope: BudgetScope, subject: str) -> BudgetCap | None:
        rows = budget_caps.c
        query = select(rows.cost_usd, rows.tokens).where(rows.scope == scope.value, rows.subject == subject)
        async with self._database.read("read the limit of a budget") as connection:
            row = (await connection.execute(query)).one_or_none()
        return BudgetCap(cost_usd=row[0], tokens=row[1]) if row is not None else None

    async def set_cap(self, scope: BudgetScope, subject: str, cap: BudgetCap | None) -> None:
        rows = budget_caps.c
        chosen = (rows.scope == scope.value) & (rows.subject == subject)
        async with self._database.write("set the limit of a budget") as connection:
            if cap is None:
                await connection.execute(delete(budget_caps).where(chosen))
                return
            values = {"cost_usd": cap.cost_usd, "tokens": cap.tokens}
            changed = await connection.execute(update(budget_caps).where(chosen).values(**values))
            if not changed.rowcount:
                await connection.execute(insert(budget_caps), {"scope": scope.value, "subject": subject, **values})

    async def caps(self) -> Mapping[tuple[BudgetScope, str], BudgetCap]:
        async with self._database.read("read the limits of budgets") as connection:
            rows = (await connection.execute(select(budget_caps))).mappings().all()
        return {
            (BudgetScope(row["scope"]), row["subject"]): BudgetCap(cost_usd=row["cost_usd"], tokens=row["tokens"])
            for row in rows
        }
