"""What models cost, as callers see it: totals by group, budgets and their limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sandlot.platform.core.errors import Forbidden, InvalidRequest
from sandlot.platform.core.model import Caller
from sandlot.platform.core.models import (
    USAGE_GROUPS,
    BudgetCap,
    BudgetScope,
    ModelCallStore,
    ModelClient,
    UsageQuery,
    UsageTotal,
)
from sandlot.platform.core.ports import Clock
from sandlot.platform.models.budgets import EVERYBODY, Budgets, BudgetView


class ModelUsage:
    def __init__(self, *, store: ModelCallStore, budgets: Budgets, clock: Clock) -> None:
        self._store, self._budgets, self._clock = store, budgets, clock

    async def totals(self, caller: Caller, wanted: UsageQuery) -> Sequence[UsageTotal]:
        """Users see theirs, admins all. Raises `InvalidRequest`."""
        unknown = [name for name in wanted.by if name not in USAGE_GROUPS]
        if unknown or not 1 <= len(wanted.by) <= 4 or len(set(wanted.by)) < len(wanted.by):
            raise InvalidRequest(f"by takes one to four of: {', '.join(USAGE_GROUPS)}")
        mine = wanted if caller.is_admin else replace(wanted, user_id=caller.user_id)
        return await self._store.totals(mine)

    async def of_task(self, task: str) -> Sequence[UsageTotal]:
        """By model."""
        return await self._store.totals(UsageQuery(by=("model",), task=task))

    async def budgets(self, caller: Caller, user_id: str | None) -> Sequence[BudgetView]:
        """What a user, and everybody together, may spend this month, and have spent."""
        if not caller.is_admin and user_id not in (None, caller.user_id):
            raise Forbidden("only an admin sees the budgets of others")
        name = user_id or caller.user_id
        views = await self._budgets.views(ModelClient(user_id=name or "", scope=BudgetScope.USER, id=name or ""))
        return [
            view
            for view in views
            if (view.key.scope is BudgetScope.ALL and caller.is_admin) or (view.key.scope is BudgetScope.USER and name)
        ]

    async def set_by_hand(self, caller: Caller) -> Mapping[tuple[BudgetScope, str], BudgetCap]:
        _only_admins(caller)
        return await self._budgets.caps()

    async def set_cap(self, caller: Caller, scope: BudgetScope, subject: str, cap: BudgetCap | None) -> None:
        """None: the configuration's counts again. Raises `Forbidden`, `InvalidRequest`."""
        _only_admins(caller)
        if scope is BudgetScope.TASK:
            raise InvalidRequest("a task's budget is one of its limits: change limits.cost_usd of the task")
        if scope is BudgetScope.ALL and subject != EVERYBODY:
            raise InvalidRequest(f"the budget of everybody is called {EVERYBODY!r}")
        await self._budgets.set_cap(scope, subject, cap)


def _only_admins(caller: Caller) -> None:
    if not caller.is_admin:
        raise Forbidden("only an admin key may see and set the limits of budgets")
