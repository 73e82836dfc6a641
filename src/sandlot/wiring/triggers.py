"""Puts the parts of triggers together: GitHub's inbox, the rules, schedules, and what acts on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sandlot.platform.config.configuration import Configuration
from sandlot.platform.core.ports import Clock
from sandlot.platform.events.log import EventLog
from sandlot.platform.forges.github_reports import GitHubReports
from sandlot.platform.store import Database, SqlGitHubInbox, SqlTriggerRules
from sandlot.platform.store.events import Route
from sandlot.platform.triggers.ci_fix import CiFix
from sandlot.platform.triggers.github import GitHubTriggers
from sandlot.platform.triggers.inbox import GitHubInbox
from sandlot.platform.triggers.making import TaskMaking
from sandlot.platform.triggers.rules import RuleBook
from sandlot.platform.triggers.schedules import Schedules
from sandlot.wiring.forges import BuiltForges
from sandlot.wiring.tasks import BuiltTasks


class TriggerLoop(Protocol):
    async def run(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerParts:
    """What triggers stand on."""

    configuration: Configuration
    database: Database
    route: Route
    events: EventLog
    forges: BuiltForges
    tasks: BuiltTasks
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltTriggers:
    inbox: GitHubInbox
    rules: RuleBook
    loops: Sequence[TriggerLoop]


def build_triggers(parts: TriggerParts) -> BuiltTriggers:
    config, tasks, forge = parts.configuration, parts.tasks.service, parts.forges.github
    reports = GitHubReports(forge.accounts)
    rules = RuleBook(
        of_file=config.triggers,
        store=SqlTriggerRules(parts.database, parts.route),
        tasks=tasks,
        events=parts.events,
        clock=parts.clock,
    )
    making = TaskMaking(rules=rules, tasks=tasks, reports=reports)
    ci = CiFix(
        making=making,
        tasks=tasks,
        forge=forge,
        reports=reports,
        timeline=parts.tasks.timeline,
        events=parts.events,
        clock=parts.clock,
    )
    triggers = GitHubTriggers(
        repositories=parts.forges.repositories,
        tasks=tasks,
        look=parts.tasks.keeper.look,
        making=making,
        ci=ci,
        forge=forge,
        reports=reports,
    )
    inbox = GitHubInbox(
        store=SqlGitHubInbox(parts.database),
        secret=config.github.webhook_secret if config.github is not None else None,
        handle=triggers.handle,
        clock=parts.clock,
        keep_s=config.policy.keep_events_s,
    )
    schedules = Schedules(making=making, repositories=parts.forges.repositories, clock=parts.clock)
    return BuiltTriggers(inbox=inbox, rules=rules, loops=(inbox, schedules))
