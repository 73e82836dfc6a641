"""What callers send about tasks and get back, each as a type."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sandlot.platform.api.requests import Identifier
from sandlot.platform.core.tasks import AttemptStatus, EntryKind, StepStatus, TaskLimits, TaskNetwork, TaskStatus

TaskText = Annotated[str, Field(min_length=1, max_length=200_000, pattern=r"^[^\x00]+$")]
ShortText = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[^\x00-\x1f\x7f]+$")]
ShellCommand = Annotated[str, Field(min_length=1, max_length=20_000, pattern=r"^[^\x00]+$")]
TaskId = Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[A-Za-z0-9_-]+$")]
Branch = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9._/-]+$")]
Label = Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[^\x00-\x1f\x7f,]+$")]


class LimitsBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    seconds: int = Field(3600, ge=1, le=82_800, description="Most time for the agent and its checks.")
    turns: int | None = Field(None, ge=1, le=10_000)
    cost_usd: float | None = Field(None, gt=0)
    attempts: int = Field(3, ge=1, le=20, description="How often the agent may try until its checks pass.")

    def record(self) -> TaskLimits:
        return TaskLimits(**self.model_dump())


class NetworkBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    internet: bool = True
    allow: list[ShortText] = Field(default_factory=list, max_length=100)

    def record(self) -> TaskNetwork:
        return TaskNetwork(internet=self.internet, allow=tuple(self.allow))


class CreateTask(BaseModel):
    model_config = ConfigDict(extra="forbid")

    repository: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="May be left out if `issue` is of a repository that is known here."
    )
    prompt: TaskText | None = Field(None, description="If left out, the title and the text of `issue` are taken.")
    user_id: Identifier | None = Field(None, description="With an admin key: whose task it is.")
    title: ShortText | None = None
    base: Branch | None = Field(None, description="The branch to begin at. Default: the repository's own.")
    agent: Identifier | None = None
    model: Identifier | None = None
    template: Identifier | None = None
    provider: Identifier | None = None
    command: ShellCommand | None = Field(None, description="What the agent `command` runs.")
    checks: list[ShellCommand] = Field(
        default_factory=list, max_length=50, description="Done when all of these end with 0."
    )
    limits: LimitsBody = Field(default_factory=lambda: LimitsBody.model_validate({}))
    network: NetworkBody = Field(default_factory=NetworkBody)
    secrets: list[Identifier] = Field(default_factory=list, max_length=50)
    labels: list[Label] = Field(default_factory=list, max_length=50)
    parent: TaskId | None = None
    blocked_by: list[TaskId] = Field(default_factory=list, max_length=50)
    attempts: int = Field(1, ge=1, le=8, description="How many sandboxes try it side by side.")
    agents: list[Identifier] = Field(default_factory=list, max_length=8)
    issue: Annotated[str, Field(max_length=500, pattern=r"^https?://")] | None = Field(
        None, description="The address of an issue that the pull request refers to."
    )
    draft_on_failure: bool = False
    start: bool = True
    artifacts: list[ShortText] = Field(default_factory=list, max_length=50)
    reviewers: list[Identifier] = Field(default_factory=list, max_length=20)


class EditTask(BaseModel):
    model_config = ConfigDict(extra="forbid")

    title: ShortText | None = None
    prompt: TaskText | None = None
    labels: list[Label] | None = Field(None, max_length=50)
    limits: LimitsBody | None = None
    checks: list[ShellCommand] | None = Field(None, max_length=50)
    blocked_by: list[TaskId] | None = Field(None, max_length=50)
    state: TaskStatus | None = Field(None, description="queued, cancelled, done or todo.")

    def changes(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in ("title", "prompt", "labels", "checks", "blocked_by"):
            value = getattr(self, name)
            if value is not None:
                found[name] = tuple(value) if isinstance(value, list) else value
        if self.limits is not None:
            found["limits"] = self.limits.record()
        return found


class TaskMessage(BaseModel):
    text: TaskText
    mode: Literal["queue", "interrupt"] = Field("queue", description="After the agent's turn, or at once.")


class ReviewComment(BaseModel):
    path: Annotated[str, Field(max_length=4096)]
    line: int | None = None
    side: Literal["old", "new", "LEFT", "RIGHT"] = "new"
    text: TaskText


class TaskReview(BaseModel):
    text: TaskText | None = None
    comments: list[ReviewComment] = Field(default_factory=list, max_length=200)


class CheckInfo(BaseModel):
    command: str
    exit_code: int | None = Field(description="None until it was run.")
    output: str
    seconds: float


class TaskLimitsInfo(BaseModel):
    seconds: int
    turns: int | None
    cost_usd: float | None
    attempts: int


class TaskNetworkInfo(BaseModel):
    internet: bool
    allow: list[str]


class TaskPullRequest(BaseModel):
    number: int
    url: str
    state: Literal["open", "merged", "closed"]
    draft: bool
    checks: Literal["pending", "success", "failure"] | None


class TokenInfo(BaseModel):
    input: int
    output: int
    cached: int


class ChangeInfo(BaseModel):
    files: int
    added: int
    removed: int


class TaskInfo(BaseModel):
    id: str
    title: str
    prompt: str
    state: TaskStatus
    reason: str | None
    repository: str
    base: str | None
    branch: str
    agent: str
    model: str | None
    template: str | None
    provider: str | None
    command: str | None
    checks: list[CheckInfo]
    limits: TaskLimitsInfo
    network: TaskNetworkInfo
    secrets: list[str]
    labels: list[str]
    parent: str | None
    blocked_by: list[str]
    attempt_count: int
    agents: list[str]
    issue: str | None
    draft_on_failure: bool
    pull_request: TaskPullRequest | None
    cost_usd: float | None
    tokens: TokenInfo
    changes: ChangeInfo
    last_action: str | None
    sandbox_id: str | None
    isolation: str | None
    artifacts: list[str]
    reviewers: list[str]
    user_id: str
    created_at: datetime
    queued_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    revision: int


class TaskPage(BaseModel):
    tasks: list[TaskInfo]
    next: str | None = Field(description="Give it as `after` for more.")
    cursor: int = Field(description="The event log's place before the tasks were read: follow /events from here.")


class EntryInfo(BaseModel):
    seq: int
    at: datetime
    kind: EntryKind
    text: str
    data: dict[str, Any]
    raw: str | None
    attempt: int


class TimelinePage(BaseModel):
    entries: list[EntryInfo]
    next: int = Field(description="Give it as `after` for more.")


class StepInfo(BaseModel):
    name: str
    status: StepStatus
    attempt: int = Field(description="How often it was tried.")
    number: int = Field(description="Which of the task's attempts it belongs to.")
    started_at: datetime | None
    ended_at: datetime | None
    problem: str | None


class StepList(BaseModel):
    steps: list[StepInfo]


class AttemptInfo(BaseModel):
    number: int
    agent: str
    state: AttemptStatus
    checks: list[CheckInfo]
    changes: ChangeInfo
    cost_usd: float | None
    seconds: float
    sandbox_id: str | None
    problem: str | None
    chosen: bool


class AttemptList(BaseModel):
    attempts: list[AttemptInfo]


class ArtifactInfo(BaseModel):
    path: str
    size: int


class ArtifactList(BaseModel):
    artifacts: list[ArtifactInfo]


class FileDiffInfo(BaseModel):
    path: str
    old_path: str | None
    status: Literal["added", "modified", "deleted", "renamed"]
    added: int
    removed: int
    binary: bool
    patch: str | None


class DiffInfo(BaseModel):
    base: str
    head: str
    files: list[FileDiffInfo]
    truncated: bool
