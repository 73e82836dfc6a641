"""Keeps rules within bounds: so many tasks in a day, and a pause after failures."""

from __future__ import annotations

from datetime import timedelta

from sandlot.platform.core.errors import Busy
from sandlot.platform.core.model import Caller, Scope
from sandlot.platform.core.ports import Clock
from sandlot.platform.core.task_ports import TaskQuery
from sandlot.platform.core.tasks import TaskStatus
from sandlot.platform.core.triggers import TriggerRule
from sandlot.platform.tasks.service import Tasks

ADMIN = Caller(user_id=None, scopes=frozenset({Scope.ADMIN, Scope.READ, Scope.WRITE}))
FAILURES = 3  # in a row, after which a rule pauses


class RuleBudget:
    """Counts the tasks that carry a rule's label."""

    def __init__(self, *, tasks: Tasks, clock: Clock) -> None:
        self._tasks, self._clock = tasks, clock

    async def check(self, rule: TriggerRule, key: str) -> None:
        """Raises `Busy` if the rule made as many tasks in a day as it may, or if its last ones all failed."""
        query = TaskQuery(label=f"rule:{rule.name}", limit=max(rule.per_day, FAILURES))
        recent = await self._tasks.list(ADMIN, query)
        if any(each.idempotency_key == key for each in recent):
            return  # it was made, and we came to an end before that was written down
        last = recent[:FAILURES]
        if len(last) == FAILURES and all(each.status is TaskStatus.FAILED for each in last):
            names = ", ".join(each.id for each in last)
            raise Busy(f"rule {rule.name!r} pauses: its last {FAILURES} tasks failed ({names}); retry or delete one")
        recent = recent[: rule.per_day]
        if len(recent) >= rule.per_day and min(each.created_at for each in recent) > self._clock() - timedelta(days=1):
            raise Busy(f"rule {rule.name!r} has made {rule.per_day} tasks within a day; that is its limit")
