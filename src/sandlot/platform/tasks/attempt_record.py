"""What the parts of an attempt share: its record, the steps of its run, and the turn that is to come."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from sandlot.platform.agents.descriptions import AgentDescription
from sandlot.platform.core.tasks import Attempt, AttemptStatus, ChangeCount, Entry, EntryKind, Task, TaskStatus
from sandlot.platform.git.service import GitService
from sandlot.platform.tasks.board import TaskBoard
from sandlot.platform.tasks.boxes import TaskBoxes
from sandlot.platform.tasks.checks import CheckRunner
from sandlot.platform.tasks.models import TaskModels
from sandlot.platform.tasks.reporting import TaskReports
from sandlot.platform.tasks.state import TaskState
from sandlot.platform.tasks.steps import RunSteps
from sandlot.platform.tasks.turns import AgentTurns, attempt_of

AFTER_AGENT = ("checks", "prove", "commit", "push", "pull_request")
Prompt = Callable[[Task, Attempt], tuple[str, dict[str, Any]]]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What a task becomes, and why; in a race, what an attempt came to."""

    to: TaskStatus
    reason: str | None
    attempt: AttemptStatus = AttemptStatus.FAILED


class Again(Exception):
    """The agent has to work on it once more: the next turn was begun."""


class Ends(Exception):
    """There is nothing more to do for this attempt."""

    def __init__(self, to: TaskStatus, reason: str, attempt: AttemptStatus = AttemptStatus.FAILED) -> None:
        super().__init__(reason)
        self.ending = Ending(to=to, reason=reason, attempt=attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptParts:
    """What attempts stand on."""

    state: TaskState
    boxes: TaskBoxes
    git: GitService
    agents: Mapping[str, AgentDescription]
    checks: CheckRunner
    models: TaskModels
    reports: TaskReports
    board: TaskBoard


class AttemptRecord:
    def __init__(self, parts: AttemptParts, task: Task, number: int, steps: RunSteps) -> None:
        self.parts, self.task_id, self.number, self.steps = parts, task.id, number, steps
        self.run, self.agent = task.run, parts.agents[attempt_of(task, number).agent]

    async def now(self) -> tuple[Task, Attempt]:
        task = await self.parts.state.get(self.task_id)
        return task, attempt_of(task, self.number)

    async def change(self, **changes: Any) -> None:
        await self.parts.state.update_attempt(self.task_id, self.number, **changes)

    async def tell(self, kind: EntryKind, words: str, **data: Any) -> None:
        await self.parts.state.timeline.add(self.task_id, Entry(kind=kind, text=words, data=data, attempt=self.number))

    async def tell_git(self, action: str, text: str, sha: str | None = None) -> None:
        await self.tell(EntryKind.GIT, text, action=action, text=text, sha=sha)

    async def do(self, name: str, act: Callable[[], Awaitable[Result]]) -> Result:
        return await self.steps.do(self.number, name, act)

    def is_done(self, name: str) -> bool:
        return self.steps.is_done(self.number, name)

    async def counted(self, changes: ChangeCount) -> None:
        """How much it has changed."""
        if (await self.now())[1].changes != changes:
            await self.change(changes=changes)

    def takes_messages(self, task: Task) -> bool:
        """In a race nobody is spoken to until one was chosen."""
        return len(task.attempts) == 1 or attempt_of(task, self.number).chosen

    def told(self, words: str, **changes: Any) -> Prompt:
        """A prompt of these words and of what people said meanwhile, which is pending no more."""

        def prompt(now: Task, _: Attempt) -> tuple[str, dict[str, Any]]:
            if not self.takes_messages(now):
                return words, {"attempt": changes}
            more: dict[str, Any] = {"pending": (), "attempt": changes}
            if now.stop == "interrupt":
                more["stop"] = None
            return "\n\n".join(text for text in (words, *now.pending) if text), more

        return prompt

    async def again(self, turns: AgentTurns, words: str, kind: str, **changes: Any) -> None:
        """Back to the agent. Raises `Again`."""
        await self.may_go_on()
        await turns.begin(self.told(words, **changes), kind)
        await self.steps.reset(self.number, "agent", *AFTER_AGENT)
        raise Again

    async def may_go_on(self) -> None:
        """Whether there is money left for another turn. Raises `Ends`."""
        task, attempt = await self.now()
        limit, cost = task.spec.limits.cost_usd, attempt.usage.cost_usd or 0.0
        if limit is not None and cost >= limit:
            words = f"it has cost ${cost:.2f} of ${limit:.2f}; raise limits.cost_usd and retry it"
            raise Ends(TaskStatus.NEEDS_YOU, words)

    async def failed_once_more(self, turns: AgentTurns, words: str, kind: str, reason: str) -> None:
        """Back to the agent, as often as the task allows. Raises `Again`, `Ends`."""
        task, attempt = await self.now()
        failures = attempt.failures + 1
        if failures >= task.spec.limits.attempts:
            await self.change(failures=failures)
            raise Ends(TaskStatus.NEEDS_YOU, reason, AttemptStatus.FAILING)
        await self.again(turns, words, kind, failures=failures)
