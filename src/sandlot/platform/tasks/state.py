"""The state of tasks: their table of moves, and the events about them. The only writer of tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sandlot.platform.core.errors import Conflict, NotFound
from sandlot.platform.core.events import Event, Subject
from sandlot.platform.core.ports import Clock
from sandlot.platform.core.task_ports import TaskStore
from sandlot.platform.core.tasks import (
    TASK,
    TASK_ENDED,
    TASK_MOVES,
    Attempt,
    Entry,
    EntryKind,
    Task,
    TaskEventType,
    TaskStatus,
)
from sandlot.platform.events.aggregate import AggregateState
from sandlot.platform.events.log import EventLog
from sandlot.platform.tasks.timeline import Timeline
from sandlot.platform.tasks.views import task_json

TRIES = 20


class TaskState(AggregateState[Task, TaskStatus]):
    def __init__(self, *, store: TaskStore, events: EventLog, timeline: Timeline, clock: Clock) -> None:
        super().__init__(noun="task", store=store, events=events, clock=clock, moves=TASK_MOVES)
        self.store, self.timeline = store, timeline
        self.listeners: list[Callable[[], None]] = []  # told when a task has moved

    async def create(self, task: Task) -> None:
        await self.add(task, self.event(task, TaskEventType.CREATED))
        self._tell()

    async def get(self, id: str) -> Task:
        """Raises `NotFound`."""
        task = await self.store.get(id)
        if task is None:
            raise NotFound(f"task {id[:80]!r} was not found")
        return task

    async def move(self, old: Task, to: TaskStatus, *events: Event, **changes: Any) -> Task:
        """With its event in one transaction, and an entry of the timeline."""
        now = self.clock()
        if to in TASK_ENDED:
            changes = {"ended_at": now, **changes}
        elif to is TaskStatus.QUEUED:
            changes = {"queued_at": now, "ended_at": None, **changes}
        if to is not TaskStatus.WORKING:
            changes = {"lease_owner": None, "lease_until": None, "stop": None, **changes}
        told = replace(old, **changes, status=to, revision=old.revision + 1)
        moved = await super().move(old, to, self.event(told, TaskEventType.STATE), *events, **changes)
        await self.timeline.add(
            moved.id, Entry(kind=EntryKind.STATE, text=moved.reason or "", data={"state": to.value})
        )
        self._tell()
        return moved

    async def update(self, id: str, change: Callable[[Task], dict[str, Any]], *, quiet: bool = False) -> Task:
        """Change what is not the state, whoever else changes it at the same time. `quiet`: not worth an event."""
        for _ in range(TRIES):
            task = await self.get(id)
            changes = change(task)
            if not changes:
                return task
            told = replace(task, **changes, revision=task.revision + 1)
            events = () if quiet else (self.event(told, TaskEventType.CHANGED),)
            try:
                changed = await self.change(task, *events, **changes)
            except Conflict:
                continue
            if not quiet:
                self._tell()  # what it waits for may have changed
            return changed
        raise Conflict(f"task {id!r} keeps changing; try again")

    async def update_attempt(self, id: str, number: int, *, quiet: bool = False, **changes: Any) -> Task:
        def change(task: Task) -> dict[str, Any]:
            return {"attempts": tuple(_changed(one, number, changes) for one in task.attempts)}

        return await self.update(id, change, quiet=quiet)

    async def move_when(self, id: str, to: TaskStatus, allowed: Callable[[Task], bool], **changes: Any) -> Task:
        """Move it, again if it changed meanwhile, as long as `allowed` says so."""
        for _ in range(TRIES):
            task = await self.get(id)
            if not allowed(task):
                raise Conflict(f"task {id!r} is {task.status.value}, so it cannot become {to.value}")
            try:
                return await self.move(task, to, **changes)
            except Conflict:
                if to not in TASK_MOVES[task.status]:
                    raise
        raise Conflict(f"task {id!r} keeps changing; try again")

    async def remove(self, task: Task) -> None:
        await self.store.remove(task, self.event(task, TaskEventType.DELETED))
        self.events.changed()
        self._tell()

    def event(self, task: Task, type: str) -> Event:
        return Event(
            type=type,
            at=self.clock(),
            user_id=task.user_id,
            subject=Subject(TASK, task.id),
            data={"task": task_json(task, brief=True)},
        )

    def _tell(self) -> None:
        for tell in self.listeners:
            tell()


def _changed(attempt: Attempt, number: int, changes: dict[str, Any]) -> Attempt:
    return replace(attempt, **changes) if attempt.number == number else attempt
