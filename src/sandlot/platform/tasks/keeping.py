"""Looks after tasks that rest: pull requests that were merged, closed or commented on, and sandboxes that are kept no longer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from sandlot.platform.core.errors import Conflict, NotFound, PlatformError
from sandlot.platform.core.forges import ForgeKind, PullRequest, PullRequestState, Repository
from sandlot.platform.core.model import Caller, Scope
from sandlot.platform.core.task_ports import TaskQuery
from sandlot.platform.core.tasks import TASK_RESTING, Task, TaskStatus
from sandlot.platform.forges.ports import Forge
from sandlot.platform.tasks.boxes import TaskBoxes
from sandlot.platform.tasks.publishing import link_of
from sandlot.platform.tasks.service import Tasks
from sandlot.platform.tasks.state import TaskState

log = logging.getLogger(__name__)
INTERVAL_S = 2.0
FAR_S = 60.0  # between two looks at a forge that is not this server
WATCHED = frozenset({TaskStatus.REVIEW, TaskStatus.NEEDS_YOU})
Find = Callable[[Task], Awaitable[Repository]]


class TaskKeeper:
    def __init__(
        self,
        *,
        state: TaskState,
        tasks: Tasks,
        boxes: TaskBoxes,
        find: Find,
        forge: Callable[[Repository], Forge],
    ) -> None:
        self._state, self._tasks, self._boxes, self._find, self._forge = state, tasks, boxes, find, forge
        self._looked: dict[str, float] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                await self.sweep()
            except PlatformError as error:
                log.error("could not look after the tasks that rest: %s", error)

    async def sweep(self) -> None:
        for task in await self._state.store.query(TaskQuery(statuses=TASK_RESTING)):
            try:
                if task.pull_request is not None and task.status in WATCHED:
                    await self._look(task)
                await self._let_go(task)
            except Conflict:
                log.debug("task %s changed before it could be looked after", task.id)
            except PlatformError as error:
                log.warning("could not look after task %s: %s", task.id, error)

    async def _look(self, task: Task) -> None:
        """At its pull request, if it is time."""
        assert task.pull_request is not None
        now = asyncio.get_running_loop().time()
        repository = await self._find(task)
        wait_s = 0.0 if repository.forge is ForgeKind.LOCAL else FAR_S
        if now - self._looked.get(task.id, -FAR_S) < wait_s:
            return
        self._looked[task.id] = now
        pull = await self._forge(repository).pull_request(repository, task.pull_request.number)
        if link_of(pull) != task.pull_request:
            task = await self._state.update(task.id, lambda _: {"pull_request": link_of(pull)})
        if pull.state is PullRequestState.MERGED:
            await self._rests(task, TaskStatus.DONE, f"pull request {pull.number} was merged")
        elif pull.state is PullRequestState.CLOSED:
            await self._rests(task, TaskStatus.CANCELLED, f"pull request {pull.number} was closed without a merge")
        else:
            await self._pass_on(task, pull)

    async def _rests(self, task: Task, to: TaskStatus, reason: str) -> None:
        self._looked.pop(task.id, None)
        await self._state.move_when(task.id, to, lambda now: now.status is task.status, reason=reason)

    async def _pass_on(self, task: Task, pull: PullRequest) -> None:
        """What people wrote on the pull request is told to the agent, once. Comments with a marker are ours."""
        new = [one for one in pull.comments if one.id > task.seen_comment and one.marker is None]
        if not new:
            return
        seen = max(comment.id for comment in new)
        task = await self._state.update(
            task.id, lambda now: {"seen_comment": seen} if seen > now.seen_comment else {}, quiet=True
        )
        lines = ["People have commented on your pull request. Work on every comment."]
        for comment in new[:50]:
            where = f" on {comment.path}:{comment.line}" if comment.path else ""
            lines += ["", f"{comment.author}{where}:", comment.body[:8000]]
        caller = Caller(user_id=task.user_id, scopes=frozenset({Scope.READ, Scope.WRITE}))
        await self._tasks.message(caller, task.id, "\n".join(lines), kind="review")

    async def _let_go(self, task: Task) -> None:
        """Delete its sandboxes when the time is over that they are kept."""
        if task.keep_until is None or task.keep_until > self._state.clock():
            return
        for attempt in task.attempts:
            await self._boxes.delete(task, attempt.number)
        attempts = tuple(replace(one, session=None, agent_session=None) for one in task.attempts)
        try:
            await self._state.change(task, keep_until=None, attempts=attempts)
        except NotFound:
            log.debug("task %s was deleted", task.id)
