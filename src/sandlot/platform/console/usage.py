"""What was used, put together for reading: hours and starts as they were counted, tokens and cost as tasks tell them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC

from sandlot.platform.core.errors import InvalidRequest
from sandlot.platform.core.task_ports import TaskQuery, TaskStore
from sandlot.platform.core.usage import UsageAmount, UsageKey, UsageStore

DIMENSIONS = ("day", "user_id", "repository", "agent")
MOST_TASKS = 20_000


class UsageSummary:
    def __init__(self, usage: UsageStore, tasks: TaskStore) -> None:
        self._usage, self._tasks = usage, tasks

    async def rows(
        self, *, first_day: str, last_day: str, by: Collection[str], user_id: str | None
    ) -> Sequence[tuple[UsageKey, UsageAmount]]:
        """Sums by some of day, user_id, repository and agent; in order. `user_id`: of this user only."""
        if unknown := set(by) - set(DIMENSIONS):
            raise InvalidRequest(f"usage is not counted by {sorted(unknown)[0]!r}; choose of {', '.join(DIMENSIONS)}")
        found: dict[UsageKey, UsageAmount] = {}
        counted = await self._usage.totals(first_day, last_day, user_id)
        for key, amount in [*counted, *await self._of_tasks(first_day, last_day, user_id)]:
            part = replace(key, **{name: "" for name in DIMENSIONS if name not in by})
            found[part] = found.get(part, UsageAmount()).plus(amount)
        return sorted(found.items(), key=lambda pair: tuple(getattr(pair[0], name) for name in DIMENSIONS))

    async def _of_tasks(self, first_day: str, last_day: str, user_id: str | None) -> list[tuple[UsageKey, UsageAmount]]:
        """A task counts on the day it was created, for each of its attempts' agents."""
        rows = []
        for task in await self._tasks.query(TaskQuery(user_id=user_id, limit=MOST_TASKS)):
            day = task.created_at.astimezone(UTC).date().isoformat()
            if not first_day <= day <= last_day:
                continue
            key = UsageKey(day=day, user_id=task.user_id, repository=task.spec.repository, agent=task.spec.agent)
            rows.append((key, UsageAmount(tasks=1)))
            for attempt in task.attempts:
                used = attempt.usage
                amount = UsageAmount(
                    tokens_input=used.input,
                    tokens_output=used.output,
                    tokens_cached=used.cached,
                    cost_usd=used.cost_usd or 0.0,
                )
                rows.append((replace(key, agent=attempt.agent), amount))
        return rows
