"""The nouns of triggers: what GitHub told us, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sandlot.platform.core.schedules import parse_schedule


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
    CI_FIX = "ci-fix"  # a workflow, or a check of another CI, failed on a branch
    REVIEW_REQUESTED = "review-requested"  # our account is asked for a review
    PUSH = "push"  # somebody pushed to a branch
    CRON = "cron"  # a time has come


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerRule:
    """When something happens at GitHub, or a time comes, a task is made. What is None is decided as for any other task."""

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
    per_pull: int = 3  # tasks for the failures of one pull request, or of one branch without one
    start: bool = True  # else somebody starts it on the board
    reproduce: tuple[str, ...] = ()  # commands that show a failure, instead of the workflow's own
    unproven: bool = False  # a change that could not be proven may become a pull request
    skip_label: str = "sandlot-skip"  # pull requests with it are left alone
    schedule: str | None = None  # five fields, in UTC: of rules that wait for a time


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleState:
    """A rule, where it comes from, and whether it pauses."""

    rule: TriggerRule
    is_of_file: bool = False  # it is in sandlot.toml, and changes there
    paused_at: datetime | None = None
    paused_reason: str | None = None
    resumed_at: datetime | None = None  # what failed before does not count any more
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRecord:
    """What is stored of a rule: all of one that came over the API, and the pauses of one that is in the file."""

    name: str
    rule: TriggerRule | None = None
    paused_at: datetime | None = None
    paused_reason: str | None = None
    resumed_at: datetime | None = None
    created_at: datetime | None = None


def check_rule(rule: TriggerRule) -> None:
    """Raises `ValueError` if it could never make a task."""
    if (rule.when is TriggerWhen.CRON) != (rule.schedule is not None):
        raise ValueError('a rule with when = "cron" has a schedule, and no other rule has one')
    if rule.schedule is not None:
        parse_schedule(rule.schedule)
    if rule.when is TriggerWhen.CRON and (not rule.repositories or not rule.prompt):
        raise ValueError('a rule with when = "cron" names its repositories, and has a prompt')


DEFAULT_RULES = (
    TriggerRule(name="issue-labelled", when=TriggerWhen.ISSUE_LABELLED),
    TriggerRule(name="mention", when=TriggerWhen.MENTION),
)
