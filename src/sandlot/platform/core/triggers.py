"""The nouns of triggers: what GitHub told us, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class InboxStatus(StrEnum):
    WAITING = "waiting"
    DONE = "done"  # it made something happen
    IGNORED = "ignored"  # there was nothing to do
    FAILED = "failed"  # it was given up


@dataclass(frozen=True, slots=True, kw_only=True)
class GitHubDelivery:
    """One webhook request of GitHub. Its id is GitHub's own, and the same when it is sent again."""

    id: str
    event: str
    action: str
    repository: str  # owner/name
    sender: str
    received_at: datetime
    status: InboxStatus = InboxStatus.WAITING
    attempts: int = 0
    next_at: datetime | None = None  # when it is worked on, or again
    outcome: str = ""  # in words: what it made happen, why it was ignored, what failed
    tasks: tuple[str, ...] = ()
    replays: int = 0
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """What became of a delivery."""

    outcome: str
    acted: bool = False
    tasks: tuple[str, ...] = ()


class TriggerWhen(StrEnum):
    """What a rule waits for."""

    ISSUE_LABELLED = "issue-labelled"
    MENTION = "mention"  # @sandlot in an issue or a pull request
    CI_FIX = "ci-fix"  # a workflow failed on a branch


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerRule:
    """When something happens at GitHub, a task is made. What is None is decided as for any other task."""

    name: str
    when: TriggerWhen
    repositories: tuple[str, ...] = ()  # by their names here; none: all
    label: str = "sandlot"
    branches: tuple[str, ...] = ("*",)  # patterns
    workflows: tuple[str, ...] = ("*",)  # patterns of their names
    permission: str = "write"  # the least that whoever triggers it must have
    bots: tuple[str, ...] = ()  # bots that may, too
    agent: str | None = None
    model: str | None = None
    template: str | None = None
    command: str | None = None
    prompt: str | None = None  # with {title}, {body}, {comment}, {url}, {log}
    checks: tuple[str, ...] = ()
    seconds: int | None = None
    cost_usd: float | None = None
    per_day: int = 20
    start: bool = True  # else somebody starts it on the board


DEFAULT_RULES = (
    TriggerRule(name="issue-labelled", when=TriggerWhen.ISSUE_LABELLED),
    TriggerRule(name="mention", when=TriggerWhen.MENTION),
)
