"""The queue of tasks: decides which is worked on next, holds the lease of those that are, and takes over what was left."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any

from sandlot.platform.core.errors import Conflict, PlatformError, Unavailable
from sandlot.platform.core.task_ports import TaskQuery
from sandlot.platform.core.tasks import TASK_RESTING, Task, TaskPolicy, TaskStatus
from sandlot.platform.tasks.service import Tasks
from sandlot.platform.tasks.state import TaskState

log = logging.getLogger(__name__)
POLL_S = 1.0
ALONE_POLL_S = 5.0  # no other process changes tasks, and every change of our own wakes the queue
LEASE = timedelta(seconds=30)
RENEW_S = 8.0
Work = Callable[[Task], Coroutine[Any, Any, None]]


def next_tasks(queued: Sequence[Task], working: Sequence[Task], policy: TaskPolicy) -> list[Task]:
    """Those that may begin now. Fair: users with fewer tasks at work come first, then by arrival."""
    running = Counter(task.user_id for task in working)
    ahead, keyed = Counter[str](), []
    for task in sorted(queued, key=_arrival):
        keyed.append((running[task.user_id] + ahead[task.user_id], *_arrival(task), task))
        ahead[task.user_id] += 1
    room, chosen = policy.running - len(working), list[Task]()
    for *_, task in sorted(keyed, key=lambda entry: entry[:3]):
        if len(chosen) >= room:
            break
        if policy.running_per_user and running[task.user_id] >= policy.running_per_user:
            continue
        running[task.user_id] += 1
        chosen.append(task)
    return chosen


def _arrival(task: Task) -> tuple[datetime, str]:
    return task.queued_at or task.created_at, task.id


class TaskQueue:
    """`is_alone`: no other process shares this database, so whatever is leased was left by one that ended."""

    def __init__(
        self, *, state: TaskState, tasks: Tasks, policy: TaskPolicy, work: Work, rest: Work, is_alone: bool
    ) -> None:
        self._state, self._tasks, self._policy, self._work, self._rest = state, tasks, policy, work, rest
        self._owner, self._is_alone = f"run-{secrets.token_hex(6)}", is_alone
        self._running: dict[str, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._closed = False
        state.listeners.append(self._wake.set)

    async def run(self) -> None:
        if self._is_alone:
            await self._tidy()
        while True:
            try:
                await self.dispatch()
            except Unavailable as error:
                log.error("the queue of tasks is blocked: %s", error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), ALONE_POLL_S if self._is_alone else POLL_S)
            self._wake.clear()

    async def dispatch(self) -> None:
        if self._closed:
            return
        await self._promote()
        working = await self._state.store.query(TaskQuery(statuses=[TaskStatus.WORKING]))
        for task in working:
            if task.id not in self._running and self._is_left(task):
                await self._take_over(task)
        queued = await self._state.store.query(TaskQuery(statuses=[TaskStatus.QUEUED]))
        free = [task for task in queued if task.id not in self._running]  # its sandbox may still be on its way to rest
        for task in next_tasks(free, working, self._policy):
            with contextlib.suppress(Conflict):  # stopped, or taken by another process
                now = self._state.clock()
                claimed = await self._state.move(
                    task,
                    TaskStatus.WORKING,
                    run=task.run + 1,
                    reason=None,
                    stop=None,
                    started_at=now,
                    keep_until=None,
                    lease_owner=self._owner,
                    lease_until=now + LEASE,
                )
                self._begin(claimed)

    async def close(self) -> None:
        """Stop working; agents go on in their sandboxes, and the next start of the platform finds them."""
        self._closed = True
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _tidy(self) -> None:
        """Sandboxes of tasks that rest: the process that worked on them may have ended before they did."""
        with contextlib.suppress(Unavailable):
            for task in await self._state.store.query(TaskQuery(statuses=TASK_RESTING)):
                if task.keep_until is not None:
                    self._begin(task, self._rest(task))

    async def _promote(self) -> None:
        for task in await self._state.store.query(TaskQuery(statuses=[TaskStatus.TODO])):
            if task.starts_itself:
                try:
                    await self._tasks.promote(task)
                except Conflict:
                    log.debug("task %s changed before it could be queued", task.id)

    def _is_left(self, task: Task) -> bool:
        if self._is_alone or task.lease_owner is None or task.lease_until is None:
            return True
        return self._state.clock() > task.lease_until

    async def _take_over(self, task: Task) -> None:
        log.warning("task %s was being worked on when its process ended; it goes on", task.id)
        with contextlib.suppress(Conflict):
            taken = await self._state.change(task, lease_owner=self._owner, lease_until=self._state.clock() + LEASE)
            self._begin(taken)

    def _begin(self, task: Task, act: Coroutine[Any, Any, None] | None = None) -> None:
        work = asyncio.create_task(act or self._hold(task))
        self._running[task.id] = work

        def ended(_: asyncio.Task[None]) -> None:
            self._running.pop(task.id, None)
            self._wake.set()
            if not work.cancelled() and (error := work.exception()):
                log.error("task %s failed unexpectedly", task.id, exc_info=error)

        work.add_done_callback(ended)

    async def _hold(self, task: Task) -> None:
        """Work on it for as long as the lease is ours: two processes never work on one task."""
        working = asyncio.ensure_future(self._work(task))
        try:
            while not working.done():
                await asyncio.wait((working,), timeout=RENEW_S)
                if not working.done() and not await self._renewed(task) and not await self._rests(task):
                    log.warning("another process works on task %s now", task.id)
                    break
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        if not working.cancelled() and (error := working.exception()):
            raise error

    async def _rests(self, task: Task) -> bool:
        """Whether its run is over: what is left to do then is to let its sandboxes rest."""
        with contextlib.suppress(PlatformError):
            return (await self._state.get(task.id)).status in TASK_RESTING
        return False

    async def _renewed(self, task: Task) -> bool:
        try:
            return await self._state.store.renew(task.id, self._owner, self._state.clock() + LEASE)
        except PlatformError as error:
            log.warning("the lease of task %s could not be kept: %s", task.id, error)
            return True  # it is ours for a while yet
