"""Dependencies of tasks: what blocks one, whether a change would make a circle, and who may begin now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence

from sandlot.platform.core.errors import InvalidRequest
from sandlot.platform.core.tasks import Task, TaskStatus

MAX_BLOCKERS = 50
MAX_VISITED = 2000
Find = Callable[[str], Awaitable[Task | None]]


async def check_circle(task: str, blocked_by: Collection[str], find: Find) -> None:
    """Raises `InvalidRequest` if one of the blockers waits, directly or not, for this task."""
    waiting, seen = list(blocked_by), set[str]()
    while waiting:
        name = waiting.pop()
        if name == task:
            raise InvalidRequest(f"task {task!r} would wait for itself: a task that blocks it is blocked by it")
        if name in seen:
            continue
        seen.add(name)
        if len(seen) > MAX_VISITED:
            raise InvalidRequest("these tasks depend on too many others")
        found = await find(name)
        waiting += found.spec.blocked_by if found is not None else ()


def blocked_reason(blockers: Sequence[tuple[str, Task | None]]) -> str | None:
    """Why a task cannot begin; None if nothing is in its way. A blocker that was deleted blocks no more."""
    for name, task in blockers:
        if task is None or task.status is TaskStatus.DONE:
            continue
        if task.status in (TaskStatus.FAILED, TaskStatus.CANCELLED):
            return f"it waits for task {name}, which is {task.status.value}; retry that, or take it off blocked_by"
        return f"it waits for task {name}"
    return None
