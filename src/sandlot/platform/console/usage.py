"""What was used, put together for reading: hours and starts as they were counted, tokens and cost as tasks and the model gateway tell them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sandlot.platform.core.errors import InvalidRequest
from sandlot.platform.core.models import NANO, ModelCallStore, UsageQuery
from sandlot.platform.core.task_ports import TaskQuery, TaskStore
from sandlot.platform.core.usage import UsageAmount, UsageKey, UsageStore

DIMENSIONS = ("day", "user_id", "repository", "agent")
MOST_TASKS = 20_000
MOST_GROUPS = 50_000


class UsageSummary:
    def __init__(self, usage: UsageStore, tasks: TaskStore, calls: ModelCallStore) -> None:
        self._usage, self._tasks, self._calls = usage, tasks, calls

    async def rows(
        self, *, first_day: str, last_day: str, by: Collection[str], user_id: str | None
    ) -> Sequence[tuple[UsageKey, UsageAmount]]:
        """Sums by some of day, user_id, repository and agent; in order. `user_id`: of this user only."""
        if unknown := set(by) - set(DIMENSIONS):
            raise InvalidRequest(f"usage is not counted by {sorted(unknown)[0]!r}; choose of {', '.join(DIMENSIONS)}")
        found: dict[UsageKey, UsageAmount] = {}
        counted = await self._usage.totals(first_day, last_day, user_id)
        spent = [
            *await self._of_tasks(first_day, last_day, user_id),
            *await self._of_sessions(first_day, last_day, user_id),
        ]
        for key, amount in [*counted, *spent]:
            part = replace(key, **{name: "" for name in DIMENSIONS if name not in by})
            found[part] = found.get(part, UsageAmount()).plus(amount)
        return sorted(found.items(), key=lambda pair: tuple(getattr(pair[0], name) for name in DIMENSIONS))

    async def _of_sessions(
        self, first_day: str, last_day: str, user_id: str | None
    ) -> list[tuple[UsageKey, UsageAmount]]:
        """What was spent at the model gateway by sessions and by users themselves; tasks tell their own."""
        begin = datetime.fromisoformat(first_day).replace(tzinfo=UTC)
        end = datetime.fromisoformat(last_day).replace(tzinfo=UTC) + timedelta(days=1)
        groups = ("day", "user", "agent", "task")
        wanted = UsageQuery(by=groups, user_id=user_id, since=begin, until=end, limit=MOST_GROUPS)
        return [
            (
                UsageKey(day=one.group["day"], user_id=one.group["user"], agent=one.group["agent"]),
                UsageAmount(
                    tokens_input=one.input,
                    tokens_output=one.output,
                    tokens_cached=one.cached,
                    cost_usd=one.cost_nano / NANO,
                ),
            )
            for one in await self._calls.totals(wanted)
            if not one.group["task"]
        ]

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
