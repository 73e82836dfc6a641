"""Tasks as callers see them: create, find, change, start, stop, message, delete. What belongs to another user is not found."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sandlot.platform.agents.descriptions import AgentDescription
from sandlot.platform.core.errors import Busy, Conflict, InvalidRequest, NotFound
from sandlot.platform.core.model import Caller
from sandlot.platform.core.proofs import ProofSpec
from sandlot.platform.core.task_ports import StepStore, TaskQuery
from sandlot.platform.core.tasks import (
    ID_LENGTH,
    ID_LETTERS,
    TASK_ENDED,
    TASK_RESTING,
    Entry,
    EntryKind,
    Task,
    TaskLimits,
    TaskNetwork,
    TaskPolicy,
    TaskSpec,
    TaskStatus,
    TaskStep,
)
from sandlot.platform.identity.keys import may_see
from sandlot.platform.tasks.children import child_limits
from sandlot.platform.tasks.dependencies import MAX_BLOCKERS, blocked_reason, check_circle
from sandlot.platform.tasks.state import TRIES, TaskState

NOBODY = "admin"  # whose tasks an admin key without a user makes
MAX_TITLE, MAX_PENDING = 120, 20
CHANGEABLE = ("title", "prompt", "labels", "limits", "checks", "blocked_by")
Resolve = Callable[[Caller, str], Awaitable[str]]  # a repository's default branch; raises `NotFound`
Discard = Callable[[Task], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRequest:
    """What a caller asks for. What is None is decided by the repository, the agent and the configuration."""

    repository: str
    prompt: str
    user_id: str | None = None
    title: str | None = None
    base: str | None = None
    agent: str | None = None
    model: str | None = None
    template: str | None = None
    provider: str | None = None
    command: str | None = None
    checks: tuple[str, ...] = ()
    limits: TaskLimits = field(default_factory=TaskLimits)
    network: TaskNetwork = field(default_factory=TaskNetwork)
    secrets: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    parent: str | None = None
    blocked_by: tuple[str, ...] = ()
    attempts: int = 1
    agents: tuple[str, ...] = ()
    issue: str | None = None
    draft_on_failure: bool = False
    artifacts: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    start: bool = True
    idempotency_key: str | None = None
    proof: ProofSpec | None = None
    told_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDefaults:
    policy: TaskPolicy = field(default_factory=TaskPolicy)
    agent: str = "claude"
    providers: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()  # names that tasks may ask for


class Tasks:
    def __init__(
        self,
        *,
        state: TaskState,
        steps: StepStore,
        agents: Mapping[str, AgentDescription],
        defaults: TaskDefaults,
        resolve: Resolve,
        discard: Discard,
    ) -> None:
        self._state, self._steps, self._agents, self._defaults = state, steps, agents, defaults
        self._resolve, self._discard = resolve, discard
        self._admission = asyncio.Lock()

    # -- creating and finding ---------------------------------------------------------------------------------------

    async def create(self, caller: Caller, request: TaskRequest) -> Task:
        user = request.user_id if caller.is_admin and request.user_id else caller.user_id or NOBODY
        if request.idempotency_key is not None:
            known = await self._state.store.by_key(user, request.idempotency_key)
            if known is not None:
                return known
        async with self._admission:
            task = await self._new_task(caller, user, request)
            try:
                await self._state.create(task)
            except Conflict:
                known = await self._state.store.by_key(user, request.idempotency_key or "")
                if known is None:
                    raise
                return known
        told = {"by": user, "kind": "message"}
        await self._state.timeline.add(task.id, Entry(kind=EntryKind.PROMPT, text=request.prompt, data=told))
        return task

    async def find(self, caller: Caller, id: str) -> Task:
        """Raises `NotFound`, with the same message if it does not exist and if it belongs to another user."""
        task = await self._state.store.get(id)
        if task is None or not may_see(caller, task.user_id):
            raise NotFound(f"task {id[:80]!r} was not found")
        return task

    async def list(self, caller: Caller, wanted: TaskQuery) -> Sequence[Task]:
        if not caller.is_admin:
            wanted = replace(wanted, user_id=caller.user_id)
        return await self._state.store.query(wanted)

    async def steps(self, caller: Caller, id: str) -> Sequence[TaskStep]:
        return await self._steps.of((await self.find(caller, id)).id)

    # -- changing ---------------------------------------------------------------------------------------------------

    async def edit(self, caller: Caller, id: str, changes: Mapping[str, Any]) -> Task:
        task = await self.find(caller, id)
        if "blocked_by" in changes:
            await self._check_blockers(caller, id, changes["blocked_by"])
        known = {name: value for name, value in changes.items() if name in CHANGEABLE}
        if "prompt" in known and task.status not in (TaskStatus.TODO, TaskStatus.QUEUED):
            raise Conflict(f"task {id!r} has begun, so its prompt stays; send it a message instead")
        edited = await self._state.update(id, lambda now: {"spec": replace(now.spec, **known)})
        if "blocked_by" in changes:
            await self.promote(edited)
        return await self._state.get(id)

    async def set_status(self, caller: Caller, id: str, to: TaskStatus) -> Task:
        """What moving a card does."""
        acts: dict[TaskStatus, Callable[[Caller, str], Awaitable[Task]]] = {
            TaskStatus.QUEUED: self.start,
            TaskStatus.CANCELLED: self.stop,
            TaskStatus.DONE: self.done,
            TaskStatus.TODO: self.shelve,
        }
        if to not in acts:
            raise InvalidRequest(f"a task cannot be put into {to.value} by hand: its run decides that")
        return await acts[to](caller, id)

    async def delete(self, caller: Caller, id: str) -> None:
        for _ in range(TRIES):
            task = await self.find(caller, id)
            if task.status not in TASK_ENDED | {TaskStatus.TODO}:
                raise Conflict(f"task {id!r} is {task.status.value}; stop it before you delete it")
            await self._discard(task)
            with contextlib.suppress(Conflict):  # something was noted of it meanwhile, or it was taken up again
                return await self._state.remove(task)
        raise Conflict(f"task {id!r} keeps changing; try again")

    # -- starting and stopping --------------------------------------------------------------------------------------

    async def start(self, caller: Caller, id: str) -> Task:
        task = await self.find(caller, id)
        if task.status is TaskStatus.QUEUED or task.status is TaskStatus.WORKING:
            return task
        if task.status is TaskStatus.TODO:
            reason = await self._blocked(task)
            if reason is not None:
                return await self._state.update(id, lambda _: {"starts_itself": True, "reason": reason})
        return await self._state.move_when(id, TaskStatus.QUEUED, lambda now: now.status is task.status, reason=None)

    async def retry(self, caller: Caller, id: str) -> Task:
        """Go on where it stopped: what is done is not done again."""
        task = await self.find(caller, id)
        if task.status not in TASK_RESTING:
            raise Conflict(f"task {id!r} is {task.status.value}; there is nothing to retry")
        attempts = tuple(replace(attempt, failures=0, conflicts=0, problem=None) for attempt in task.attempts)
        return await self._state.move_when(
            id, TaskStatus.QUEUED, lambda now: now.status in TASK_RESTING, reason=None, attempts=attempts
        )

    async def stop(self, caller: Caller, id: str) -> Task:
        return await self._end(caller, id, "stop", TaskStatus.CANCELLED, "stopped by its user")

    async def pause(self, caller: Caller, id: str) -> Task:
        task = await self.find(caller, id)
        to = TaskStatus.TODO if task.status is TaskStatus.QUEUED and not task.attempts else TaskStatus.NEEDS_YOU
        return await self._end(caller, id, "pause", to, "paused by its user; start it to go on")

    async def _end(self, caller: Caller, id: str, how: str, to: TaskStatus, reason: str) -> Task:
        """A task that is worked on ends when its run has seen the wish; another one at once."""
        task = await self.find(caller, id)
        if task.status is TaskStatus.WORKING:
            return await self._state.update(id, lambda now: {"stop": how} if now.status is TaskStatus.WORKING else {})
        if task.status is to:
            return task
        return await self._state.move_when(id, to, lambda now: now.status is task.status, reason=reason)

    async def done(self, caller: Caller, id: str) -> Task:
        await self.find(caller, id)
        allowed = (TaskStatus.NEEDS_YOU, TaskStatus.REVIEW)
        return await self._state.move_when(
            id, TaskStatus.DONE, lambda now: now.status in allowed, reason="its user says that it is done"
        )

    async def shelve(self, caller: Caller, id: str) -> Task:
        await self.find(caller, id)
        allowed = (TaskStatus.QUEUED, TaskStatus.FAILED, TaskStatus.CANCELLED)
        return await self._state.move_when(
            id, TaskStatus.TODO, lambda now: now.status in allowed, reason=None, starts_itself=False
        )

    async def message(
        self, caller: Caller, id: str, text: str, *, interrupt: bool = False, kind: str = "message"
    ) -> Task:
        """Say something to its agent: after its turn, or at once; a task that rests is taken up again."""
        task = await self.find(caller, id)
        if len(task.pending) >= MAX_PENDING:
            raise Busy(f"task {id!r} has {MAX_PENDING} messages that its agent has not read yet")

        def added(now: Task) -> dict[str, Any]:
            working = now.status is TaskStatus.WORKING
            return {"pending": (*now.pending, text), **({"stop": "interrupt"} if interrupt and working else {})}

        task = await self._state.update(id, added)
        told = {"by": caller.user_id or NOBODY, "kind": kind, "follow_up": True}
        await self._state.timeline.add(id, Entry(kind=EntryKind.PROMPT, text=text, data=told))
        if task.status in TASK_RESTING:
            task = await self._state.move_when(
                id, TaskStatus.QUEUED, lambda now: now.status in TASK_RESTING, reason=None
            )
        return task

    # -- dependencies -----------------------------------------------------------------------------------------------

    async def promote(self, task: Task) -> None:
        """Queue it if it was only waiting for others, or tell what it waits for."""
        if task.status is not TaskStatus.TODO or not task.starts_itself:
            return
        reason = await self._blocked(task)
        if reason is None:
            await self._state.move_when(
                task.id, TaskStatus.QUEUED, lambda now: now.status is TaskStatus.TODO and now.starts_itself, reason=None
            )
        elif reason != task.reason:
            await self._state.update(task.id, lambda _: {"reason": reason})

    async def _blocked(self, task: Task) -> str | None:
        return blocked_reason([(name, await self._state.store.get(name)) for name in task.spec.blocked_by])

    async def _check_blockers(self, caller: Caller, id: str, blocked_by: Sequence[str]) -> None:
        if len(blocked_by) > MAX_BLOCKERS:
            raise InvalidRequest(f"a task waits for at most {MAX_BLOCKERS} others")
        for name in blocked_by:
            await self.find(caller, name)
        await check_circle(id, blocked_by, self._state.store.get)

    # -- planning ---------------------------------------------------------------------------------------------------

    async def _new_task(self, caller: Caller, user: str, request: TaskRequest) -> Task:
        agents = self._agents_of(request)
        if request.provider is not None and request.provider not in self._defaults.providers:
            known = ", ".join(sorted(self._defaults.providers))
            raise InvalidRequest(f"provider {request.provider!r} is not in the configuration (known: {known})")
        for name in request.secrets:
            if name not in self._defaults.secrets:
                raise InvalidRequest(f"secret {name!r} is not in the configuration; add it to [secrets]")
        base = request.base or await self._resolve(caller, request.repository)
        id, now = _new_id(), self._state.clock()
        depth, limits = await self._below(caller, request)
        await self._check_blockers(caller, id, request.blocked_by)
        spec = TaskSpec(
            **{name: getattr(request, name) for name in _COPIED},
            base=base,
            title=request.title or title_of(request.prompt),
            agent=agents[0],
            agents=agents if request.agents else (),
            attempts=max(request.attempts, len(agents)),
            depth=depth,
            limits=limits,
        )
        task = Task(
            id=id,
            user_id=user,
            status=TaskStatus.TODO,
            spec=spec,
            created_at=now,
            starts_itself=request.start,
            idempotency_key=request.idempotency_key,
        )
        if not request.start:
            return task
        reason = await self._blocked(task)
        if reason is not None:
            return replace(task, reason=reason)
        return replace(task, status=TaskStatus.QUEUED, queued_at=now)

    def _agents_of(self, request: TaskRequest) -> tuple[str, ...]:
        names = request.agents or (request.agent or self._default_agent(request),)
        for name in names:
            if name not in self._agents:
                raise InvalidRequest(f"agent {name!r} is not known (known: {', '.join(sorted(self._agents))})")
        if "command" in names and not request.command:
            raise InvalidRequest('the agent "command" needs a command: the program that does the work')
        return tuple(names)

    def _default_agent(self, request: TaskRequest) -> str:
        return "command" if request.command else self._defaults.agent

    async def _below(self, caller: Caller, request: TaskRequest) -> tuple[int, TaskLimits]:
        """How deep it is below other tasks, and what those leave it."""
        if request.parent is None:
            return 0, request.limits
        above = await self.find(caller, request.parent)
        children = await self._state.store.query(TaskQuery(parent=request.parent))
        return above.spec.depth + 1, child_limits(above, children, request.limits, self._defaults.policy)


_COPIED = (
    "repository", "prompt", "model", "template", "provider", "command", "checks", "network", "secrets",
    "labels", "parent", "blocked_by", "issue", "draft_on_failure", "artifacts", "reviewers",
    "proof", "told_at",
)  # fmt: skip


def title_of(prompt: str) -> str:
    """The first sentence of a prompt, short enough for a card."""
    first = next((line.strip() for line in prompt.splitlines() if line.strip()), "task")
    first = re.sub(r"^[#>*\-\s]+", "", first) or first
    sentence = re.split(r"(?<=[.!?])\s", first, maxsplit=1)[0].rstrip(".")
    return sentence if len(sentence) <= MAX_TITLE else sentence[: MAX_TITLE - 1].rstrip() + "…"


def _new_id() -> str:
    return "".join(secrets.choice(ID_LETTERS) for _ in range(ID_LENGTH))
