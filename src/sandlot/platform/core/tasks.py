"""The nouns of tasks: what is asked for, the moves a task may make, attempts, steps, and the entries of a timeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from sandlot.platform.core.proofs import Proof, ProofSpec

TASK = "task"  # the kind of subject that tasks are
ID_LETTERS = "bcdfghjkmnpqrstvwxz23456789"  # none that is read as another, no vowels
ID_LENGTH = 8


class TaskStatus(StrEnum):
    TODO = "todo"
    QUEUED = "queued"
    WORKING = "working"
    NEEDS_YOU = "needs_you"
    REVIEW = "review"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


T = TaskStatus
TASK_MOVES: Mapping[TaskStatus, frozenset[TaskStatus]] = {
    T.TODO: frozenset({T.QUEUED, T.CANCELLED}),
    T.QUEUED: frozenset({T.WORKING, T.TODO, T.NEEDS_YOU, T.FAILED, T.CANCELLED}),
    T.WORKING: frozenset({T.NEEDS_YOU, T.REVIEW, T.DONE, T.FAILED, T.CANCELLED, T.QUEUED}),
    T.NEEDS_YOU: frozenset({T.QUEUED, T.REVIEW, T.DONE, T.CANCELLED, T.FAILED}),
    T.REVIEW: frozenset({T.QUEUED, T.DONE, T.CANCELLED, T.NEEDS_YOU}),
    T.DONE: frozenset({T.QUEUED}),
    T.FAILED: frozenset({T.QUEUED, T.TODO}),
    T.CANCELLED: frozenset({T.QUEUED, T.TODO}),
}
TASK_ENDED = frozenset({T.DONE, T.FAILED, T.CANCELLED})
TASK_RESTING = frozenset({T.NEEDS_YOU, T.REVIEW, *TASK_ENDED})  # nothing runs; a message wakes it


class TaskEventType(StrEnum):
    CREATED = "task.created"
    STATE = "task.state"
    CHANGED = "task.changed"
    DELETED = "task.deleted"


class EntryKind(StrEnum):
    """What an entry of a timeline tells of."""

    MESSAGE = "message"
    THINKING = "thinking"
    COMMAND = "command"
    EDIT = "edit"
    TOOL = "tool"
    TEST = "test"
    GIT = "git"
    QUESTION = "question"
    USAGE = "usage"
    ERROR = "error"
    RESULT = "result"
    STEP = "step"
    PROMPT = "prompt"
    STATE = "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimits:
    """How much one task may use. `attempts`: how often failing checks go back to the agent, the first turn included."""

    seconds: int = 3600
    turns: int | None = None
    cost_usd: float | None = None
    attempts: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNetwork:
    internet: bool = True
    allow: tuple[str, ...] = ()  # hosts that may be reached although `internet` is off


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """What was asked for."""

    repository: str
    prompt: str
    title: str
    agent: str
    base: str | None = None  # None: the repository's default branch
    model: str | None = None
    template: str | None = None
    provider: str | None = None
    command: str | None = None
    checks: tuple[str, ...] = ()
    limits: TaskLimits = TaskLimits()
    network: TaskNetwork = TaskNetwork()
    secrets: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    parent: str | None = None
    depth: int = 0  # how many parents there are above it
    blocked_by: tuple[str, ...] = ()
    attempts: int = 1
    agents: tuple[str, ...] = ()
    issue: str | None = None
    draft_on_failure: bool = False
    artifacts: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    proof: ProofSpec | None = None  # what has to turn from red to green
    told_at: int | None = None  # the issue or pull request where it was asked for, and where its end is told

    @property
    def reports(self) -> bool:
        """Whether somebody at a forge waits for its end."""
        return self.proof is not None or self.told_at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """A check, and how it ended last. `exit_code` is None until it was run."""

    command: str
    exit_code: int | None = None
    output: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """What a model was given and gave. `input` counts what came from its cache, too."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cost_usd: float | None = None

    def plus(self, other: TokenUsage) -> TokenUsage:
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return TokenUsage(
            input=self.input + other.input,
            output=self.output + other.output,
            cached=self.cached + other.cached,
            cost_usd=sum(costs) if costs else None,
        )

    def since(self, before: TokenUsage) -> TokenUsage:
        """What a count of everything has more than it had before. Its cost is not known."""
        if self.input < before.input or self.output < before.output:  # it was not a count of everything
            return TokenUsage(input=self.input, output=self.output, cached=self.cached)
        cached = max(self.cached - before.cached, 0)
        return TokenUsage(input=self.input - before.input, output=self.output - before.output, cached=cached)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCount:
    files: int = 0
    added: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequestLink:
    """The pull request that a task became."""

    number: int
    url: str
    state: str = "open"  # open, merged, closed
    draft: bool = False
    checks: str | None = None  # pending, success, failure


class AttemptStatus(StrEnum):
    WAITING = "waiting"
    WORKING = "working"
    READY = "ready"  # its checks pass
    FAILING = "failing"  # its checks do not pass
    UNCHANGED = "unchanged"
    FAILED = "failed"  # the agent did not come to an end


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One agent's try at a task, in a sandbox of its own. Most tasks have one."""

    number: int
    agent: str
    model: str | None = None
    status: AttemptStatus = AttemptStatus.WAITING
    session: str | None = None  # the platform's id of its sandbox
    turn: int = 0  # how often the agent was started; its files are named by it
    turn_started_at: datetime | None = None
    turn_ended: bool = True  # false from before a turn starts until its end is stored
    sent: str = ""  # what the agent was told in this turn
    agent_session: str | None = None  # the agent's own name for the conversation
    result: str = ""  # its last words
    failures: int = 0  # how often failing checks, or a refused push, went back to it
    conflicts: int = 0  # how often a conflict with the base went back to it
    losses: int = 0  # how often its sandbox, or the agent in it, was lost
    usage: TokenUsage = TokenUsage()
    turn_usage: TokenUsage = TokenUsage()  # of a turn that has not ended
    checks: tuple[CheckResult, ...] = ()
    changes: ChangeCount = ChangeCount()
    seconds: float = 0.0
    problem: str | None = None
    question: str | None = None
    chosen: bool = False
    proof: Proof | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkPoint:
    """A snapshot of the prepared sandbox of a race, with which the other attempts begin."""

    provider: str
    snapshot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Work on a repository that becomes a pull request."""

    id: str
    user_id: str
    status: TaskStatus
    spec: TaskSpec
    created_at: datetime
    reason: str | None = None
    base_sha: str | None = None
    run: int = 0  # how often it was taken from the queue
    attempts: tuple[Attempt, ...] = ()
    pending: tuple[str, ...] = ()  # messages that the agent has not got yet
    stop: str | None = None  # somebody wants it to stop: "stop", "pause" or "interrupt"
    starts_itself: bool = False  # in todo: it is queued when nothing blocks it any more
    pull_request: PullRequestLink | None = None
    last_action: str | None = None
    isolation: str | None = None
    fork_point: ForkPoint | None = None
    seen_comment: int = 0  # the newest comment on its pull request that its agent was told of
    artifacts: tuple[str, ...] = ()  # paths that were kept
    idempotency_key: str | None = None
    lease_owner: str | None = None  # the process that works on it
    lease_until: datetime | None = None
    keep_until: datetime | None = None  # when its sandbox is deleted
    queued_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    revision: int = 0

    @property
    def branch(self) -> str:
        return f"task-{self.id}"

    @property
    def chosen(self) -> Attempt | None:
        """The attempt that counts: the one that was chosen, else the only one."""
        found = next((attempt for attempt in self.attempts if attempt.chosen), None)
        return found or (self.attempts[0] if len(self.attempts) == 1 else None)

    @property
    def usage(self) -> TokenUsage:
        total = TokenUsage()
        for attempt in self.attempts:
            total = total.plus(attempt.usage).plus(attempt.turn_usage)
        return total


class StepStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


STEPS = (
    "sandbox",
    "clone",
    "branch",
    "setup",
    "reproduce",
    "agent",
    "checks",
    "prove",
    "commit",
    "push",
    "pull_request",
    "cleanup",
    "report",
)
PROVING = ("reproduce", "prove")  # steps of tasks that have something to prove
REPORTING = ("report",)  # of tasks that were asked for at a forge


def steps_of(spec: TaskSpec) -> tuple[str, ...]:
    """The steps of a run of such a task."""
    missing = (() if spec.proof is not None else PROVING) + (() if spec.reports else REPORTING)
    return tuple(name for name in STEPS if name not in missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStep:
    """One step of one run: written before it begins and after it ended. `attempt` counts how often it was tried."""

    task_id: str
    run: int
    number: int  # of the task's attempt
    name: str
    status: StepStatus
    attempt: int = 1
    started_at: datetime | None = None
    ended_at: datetime | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing that happened in a task, in its order. `seq` is 0 until it is stored."""

    kind: EntryKind
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    raw: str | None = None
    at: datetime | None = None
    attempt: int = 1
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPolicy:
    """Limits of all tasks together."""

    running: int = 4
    running_per_user: int = 0  # 0: as many as may run at all
    depth: int = 2
    children: int = 20
    keep_sandbox_s: int = 86400
    protected: tuple[str, ...] = (".github/workflows",)
    max_push_mb: int = 512
    max_artifact_mb: int = 64
