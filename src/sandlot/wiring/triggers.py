"""Puts the parts of triggers together: GitHub's inbox, and what acts on it."""

from __future__ import annotations

from dataclasses import dataclass

from sandlot.platform.config.configuration import Configuration
from sandlot.platform.core.ports import Clock
from sandlot.platform.forges.github_reports import GitHubReports
from sandlot.platform.store import Database, SqlGitHubInbox
from sandlot.platform.triggers.budgets import RuleBudget
from sandlot.platform.triggers.github import GitHubTriggers
from sandlot.platform.triggers.inbox import GitHubInbox
from sandlot.wiring.forges import BuiltForges
from sandlot.wiring.tasks import BuiltTasks


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerParts:
    """What triggers stand on."""

    configuration: Configuration
    database: Database
    forges: BuiltForges
    tasks: BuiltTasks
    clock: Clock


def build_triggers(parts: TriggerParts) -> GitHubInbox:
    config = parts.configuration
    triggers = GitHubTriggers(
        repositories=parts.forges.repositories,
        tasks=parts.tasks.service,
        look=parts.tasks.keeper.look,
        budget=RuleBudget(tasks=parts.tasks.service, clock=parts.clock),
        forge=parts.forges.github,
        reports=GitHubReports(parts.forges.github.accounts),
        timeline=parts.tasks.timeline,
        rules=config.triggers,
    )
    return GitHubInbox(
        store=SqlGitHubInbox(parts.database),
        secret=config.github.webhook_secret if config.github is not None else None,
        handle=triggers.handle,
        clock=parts.clock,
        keep_s=config.policy.keep_events_s,
    )
