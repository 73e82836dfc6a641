"""What triggers do to tasks that exist: tell their agents something once, end them, and keep rules within their budgets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sandlot.platform.core.errors import Busy, Conflict
from sandlot.platform.core.model import Caller, Scope
from sandlot.platform.core.ports import Clock
from sandlot.platform.core.task_ports import TaskQuery
from sandlot.platform.core.tasks import TASK_ENDED, Entry, EntryKind, Task, TaskStatus
from sandlot.platform.core.triggers import Handled, TriggerRule
from sandlot.platform.tasks.service import Tasks
from sandlot.platform.tasks.timeline import Timeline

ADMIN = Caller(user_id=None, scopes=frozenset({Scope.ADMIN, Scope.READ, Scope.WRITE}))
PAGE = 500
FAILURES = 3  # in a row, after which a rule pauses


class TaskMessages:
    def __init__(self, *, tasks: Tasks, timeline: Timeline, clock: Clock) -> None:
        self._tasks, self._timeline, self._clock = tasks, timeline, clock

    async def tell(self, task: Task, text: str, key: str) -> Handled:
        """Send a message to the task's agent, once for each key; a task that rests is taken up again."""
        note = f"[{key}]"
        if task.status in (TaskStatus.CANCELLED, TaskStatus.FAILED):
            return Handled(outcome=f"task {task.id} is {task.status.value}; nobody is told")
        if any(note in each.text for each in await self._prompts(task)) or any(note in each for each in task.pending):
            return Handled(outcome=f"task {task.id} was told", acted=True, tasks=(task.id,))
        await self._tasks.message(ADMIN, task.id, f"{text}\n\n{note}")
        return Handled(outcome=f"task {task.id} was told", acted=True, tasks=(task.id,))

    async def _prompts(self, task: Task) -> Sequence[Entry]:
        found: list[Entry] = []
        after = 0
        while page := await self._timeline.page(task.id, after, PAGE, {EntryKind.PROMPT}):
            found += page
            after = page[-1].seq
        return found

    async def end(self, task: Task, *, merged: bool, by: str) -> Handled:
        """What a merge, or a close, means for the task."""
        wanted = TaskStatus.DONE if merged else TaskStatus.CANCELLED
        if task.status in TASK_ENDED:
            return Handled(outcome=f"task {task.id} is {task.status.value} already")
        try:
            await (self._tasks.done if merged else self._tasks.stop)(ADMIN, task.id)
        except Conflict:
            if not merged:
                raise
            await self._tasks.stop(ADMIN, task.id)  # it was worked on: what is merged is merged
        how = "merged" if merged else "closed"
        return Handled(outcome=f"task {task.id} becomes {wanted.value}: {by} {how} it", acted=True, tasks=(task.id,))

    async def check_budget(self, rule: TriggerRule, key: str) -> None:
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
