"""Forks: the sandbox of the first attempt is prepared once, and the others begin with a snapshot of it."""

from __future__ import annotations

import logging

from sandlot.platform.core.errors import PlatformError, SandboxGone, Unavailable
from sandlot.platform.core.tasks import AttemptStatus, ForkPoint, Task
from sandlot.platform.sessions.snapshots import SessionSnapshots
from sandlot.platform.tasks.attempts import AFTER_SANDBOX, AttemptRun
from sandlot.platform.tasks.state import TaskState
from sandlot.platform.tasks.steps import RunSteps

log = logging.getLogger(__name__)


class TaskForks:
    def __init__(self, *, state: TaskState, snapshots: SessionSnapshots) -> None:
        self._state, self._snapshots = state, snapshots

    async def prepare(self, task: Task, first: AttemptRun, steps: RunSteps) -> None:
        """Safe to repeat. Where a provider has no snapshots, every attempt prepares its own sandbox."""
        others = [attempt for attempt in task.attempts if attempt.number > 1]
        if task.fork_point is None:
            if any(attempt.session is not None or attempt.status is not AttemptStatus.WAITING for attempt in others):
                return
            try:
                session = await first.prepare()
                provider, snapshot = await self._snapshots.take(session, f"task-{task.id}")
            except (Unavailable, SandboxGone) as error:
                log.info("the sandbox of task %s is not shared: %s", task.id, error)
                return
            except PlatformError as error:
                log.info("the provider of task %s cannot fork its sandbox: %s", task.id, error)
                return
            point = ForkPoint(provider=provider, snapshot=snapshot)
            task = await self._state.update(task.id, lambda _: {"fork_point": point})
        for attempt in others:
            if attempt.session is None:
                await steps.note(attempt.number, *AFTER_SANDBOX)

    async def drop(self, task: Task) -> None:
        """When every attempt has its sandbox, or none wants one any more."""
        if task.fork_point is not None:
            await self._snapshots.drop(task.fork_point.provider, task.fork_point.snapshot)
            await self._state.update(task.id, lambda _: {"fork_point": None})
