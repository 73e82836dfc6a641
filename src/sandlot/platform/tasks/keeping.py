"""Looks after tasks that rest: pull requests that were merged, closed or commented on, and sandboxes that are kept no longer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

from sandlot.platform.core.errors import Conflict, NotFound, PlatformError
from sandlot.platform.core.events import Event, EventFilter
from sandlot.platform.core.forges import ForgeKind, PullComment, PullRequest, PullRequestState, Repository
from sandlot.platform.core.model import Caller, Scope
from sandlot.platform.core.task_ports import TaskQuery
from sandlot.platform.core.tasks import TASK_RESTING, Task, TaskStatus
from sandlot.platform.forges.ports import Forge, KnowsPeople
from sandlot.platform.tasks.boxes import TaskBoxes
from sandlot.platform.tasks.publishing import link_of
from sandlot.platform.tasks.service import Tasks
from sandlot.platform.tasks.state import TaskState

log = logging.getLogger(__name__)
INTERVAL_S = 5.0
LOOK_S = 60.0  # between two looks at a pull request of which nothing was heard
PULLS = EventFilter(subject_kind="pull")
SETTLED = timedelta(seconds=3)  # how old comments elsewhere are when they are told: a review's come one by one
WATCHED = frozenset({TaskStatus.REVIEW, TaskStatus.NEEDS_YOU})
Find = Callable[[Task], Awaitable[Repository]]


class TaskKeeper:
    """Pull requests that are hosted here tell of themselves in the event log; others are looked at now and then."""

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
        self._swept_at = -INTERVAL_S

    async def run(self) -> None:
        await self._guarded(self.sweep())
        async for page in self._state.events.read(None, PULLS, INTERVAL_S):
            for event in page:
                await self._guarded(self._heard(event))
            if asyncio.get_running_loop().time() - self._swept_at >= INTERVAL_S:
                await self._guarded(self.sweep())

    async def sweep(self) -> None:
        self._swept_at = asyncio.get_running_loop().time()
        for task in await self._state.store.query(TaskQuery(statuses=TASK_RESTING)):
            await self._guarded(self._after(task))

    async def look(self, id: str) -> Task:
        """Now: somebody says that there is news at its pull request."""
        task = await self._state.get(id)
        self._looked.pop(id, None)
        if task.pull_request is not None and task.status in WATCHED:
            await self._look(task, await self._find(task))
        return await self._state.get(id)

    async def make_room(self, task: Task) -> bool:
        """Delete the sandbox that its user's tasks have kept longest; whether there was one."""
        found = await self._state.store.query(TaskQuery(user_id=task.user_id, statuses=TASK_RESTING))
        kept = [one for one in found if one.keep_until is not None and any(a.session for a in one.attempts)]
        for oldest in sorted(kept, key=lambda one: one.keep_until or one.created_at)[:1]:
            log.info("the sandbox of task %s is deleted: task %s has no room", oldest.id, task.id)
            await self._delete_sandboxes(oldest)
            return True
        return False

    async def _guarded(self, act: Awaitable[None]) -> None:
        try:
            await act
        except (Conflict, NotFound) as error:
            log.debug("a task changed before it could be looked after: %s", error)
        except PlatformError as error:
            log.warning("could not look after a task: %s", error)

    async def _heard(self, event: Event) -> None:
        """Something happened to a pull request that is hosted here."""
        head = str(event.data.get("head", ""))
        if head.startswith("task-"):
            task = await self._state.store.get(head.removeprefix("task-"))
            if task is not None and task.pull_request is not None and task.status in WATCHED:
                await self._look(task, await self._find(task))

    async def _after(self, task: Task) -> None:
        now = asyncio.get_running_loop().time()
        if task.pull_request is not None and task.status in WATCHED:
            if now - self._looked.get(task.id, -LOOK_S) >= LOOK_S:
                self._looked[task.id] = now
                await self._look(task, await self._find(task))
        else:
            self._looked.pop(task.id, None)
        if task.keep_until is not None and task.keep_until <= self._state.clock():
            await self._delete_sandboxes(await self._state.get(task.id))

    async def _look(self, task: Task, repository: Repository) -> None:
        assert task.pull_request is not None
        pull = await self._forge(repository).pull_request(repository, task.pull_request.number)
        if link_of(pull) != task.pull_request:
            task = await self._state.update(task.id, lambda _: {"pull_request": link_of(pull)})
        if pull.state is PullRequestState.MERGED:
            await self._rests(task, TaskStatus.DONE, f"pull request {pull.number} was merged")
        elif pull.state is PullRequestState.CLOSED:
            await self._rests(task, TaskStatus.CANCELLED, f"pull request {pull.number} was closed without a merge")
        elif repository.forge is ForgeKind.LOCAL or isinstance(self._forge(repository), KnowsPeople):
            await self._pass_on(task, repository, pull)

    async def _rests(self, task: Task, to: TaskStatus, reason: str) -> None:
        await self._state.move_when(task.id, to, lambda now: now.status is task.status, reason=reason)

    async def _pass_on(self, task: Task, repository: Repository, pull: PullRequest) -> None:
        """What people wrote on the pull request is told to the agent, once. Comments with a marker are ours."""
        is_far = repository.forge is not ForgeKind.LOCAL
        new = [one for one in pull.comments if _place(one, is_far) > task.seen_comment and one.marker is None]
        if is_far:
            settled = [one for one in new if one.created_at <= self._state.clock() - SETTLED]
            if len(settled) < len(new):
                self._looked.pop(task.id, None)  # the others are told at the next look, which is soon
                return
        if not new:
            return
        seen = max(_place(comment, is_far) for comment in new)
        forge = self._forge(repository)
        if isinstance(forge, KnowsPeople):
            may = {login: await forge.may_command(repository, login) for login in {one.author for one in new}}
            new = [one for one in new if may[one.author]]
        task = await self._state.update(
            task.id, lambda now: {"seen_comment": seen} if seen > now.seen_comment else {}, quiet=True
        )
        if not new:
            return
        lines = ["People have commented on your pull request. Work on every comment."]
        for comment in new[:50]:
            where = f" on {comment.path}:{comment.line}" if comment.path else ""
            lines += ["", f"{comment.author}{where}:", comment.body[:8000]]
        caller = Caller(user_id=task.user_id, scopes=frozenset({Scope.READ, Scope.WRITE}))
        await self._tasks.message(caller, task.id, "\n".join(lines), kind="review")

    async def _delete_sandboxes(self, task: Task) -> None:
        """The record first: whoever takes the task up meanwhile does not count on them."""
        attempts = tuple(replace(one, session=None, agent_session=None) for one in task.attempts)
        await self._state.change(task, keep_until=None, attempts=attempts)
        for attempt in task.attempts:
            await self._boxes.delete(task, attempt.number)


def _place(comment: PullComment, is_far: bool) -> int:
    """Where it is among the comments. Elsewhere, remarks on lines are numbered apart from others: there the time counts."""
    return int(comment.created_at.timestamp() * 1000) if is_far else comment.id
