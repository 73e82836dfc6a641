"""From a rule to a task: which rule counts, who may trigger it, and what the task is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from sandlot.platform.core.forges import Repository
from sandlot.platform.core.tasks import Task, TaskLimits
from sandlot.platform.core.triggers import GitHubDelivery, Handled, TriggerRule, TriggerWhen
from sandlot.platform.forges.github_reports import GitHubReports
from sandlot.platform.tasks.service import TaskRequest, Tasks
from sandlot.platform.triggers.payloads import Payload, Sender
from sandlot.platform.triggers.rules import ADMIN, RuleBook


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A delivery whose repository and sender are known."""

    delivery: GitHubDelivery
    payload: Payload
    repository: Repository
    sender: Sender

    @property
    def key(self) -> str:
        """What makes an effect of this delivery one: it is the same when it is tried again, another when replayed."""
        return f"github-{self.delivery.id}{self.replay}"

    @property
    def replay(self) -> str:
        return f"-{self.delivery.replays}" if self.delivery.replays else ""


def ignored(why: str) -> Handled:
    return Handled(outcome=why)


class TaskMaking:
    """The first rule that fits counts."""

    def __init__(self, *, rules: RuleBook, tasks: Tasks, reports: GitHubReports) -> None:
        self.rules, self._tasks, self._reports = rules, tasks, reports

    async def rule(
        self, when: TriggerWhen, repository: Repository, fits: Callable[[TriggerRule], bool] = lambda _: True
    ) -> TriggerRule | None:
        for state in await self.rules.list():
            rule = state.rule
            wanted = not rule.repositories or any(fnmatchcase(repository.name, each) for each in rule.repositories)
            if rule.when is when and wanted and fits(rule):
                return rule
        return None

    async def refusal(self, arrived: Arrived, rule: TriggerRule) -> Handled | None:
        """None: whoever sent it may command us."""
        login = arrived.sender.login
        if arrived.sender.is_bot:
            if login.lower() in {each.lower() for each in rule.bots}:
                return None
            return ignored(f"{login} is a bot, and no rule lists it")
        if await self._reports.may(arrived.repository, login, rule.permission):
            return None
        return ignored(f"{login} has no {rule.permission} permission in {arrived.delivery.repository}")

    async def create(
        self,
        rule: TriggerRule,
        repository: Repository,
        prompt: str,
        *,
        key: str,
        place: str | None = None,
        **more: Any,
    ) -> Task:
        """`place` is where a rule tries only so often. Raises `Busy` if it may not do more."""
        await self.rules.check(rule, key, place)
        limits = TaskLimits()
        if rule.seconds is not None or rule.cost_usd is not None:
            limits = TaskLimits(seconds=rule.seconds or limits.seconds, cost_usd=rule.cost_usd)
        labels = (f"rule:{rule.name}", *((place,) if place is not None else ()))
        request = TaskRequest(
            repository=repository.name,
            prompt=prompt,
            user_id=repository.user_id,
            agent=rule.agent,
            model=rule.model,
            template=rule.template,
            command=rule.command,
            checks=rule.checks,
            limits=limits,
            labels=labels,
            start=rule.start,
            idempotency_key=key,
            **more,
        )
        return await self._tasks.create(ADMIN, request)


def made(task: Task, rule: TriggerRule) -> Handled:
    return Handled(outcome=f"task {task.id} was made by rule {rule.name!r}", acted=True, tasks=(task.id,))


def filled(template: str, values: Mapping[str, str]) -> str:
    """Only our own names are replaced, once: what people wrote is no template."""
    found = template
    parts = []
    while found:
        at = [(found.find(f"{{{name}}}"), name) for name in (*values, "log") if f"{{{name}}}" in found]
        if not at:
            break
        place, name = min(at)
        parts += [found[:place], values.get(name, "")]
        found = found[place + len(name) + 2 :]
    return "".join([*parts, found])
