"""Makes the tasks of rules whose time has come."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta

from sandlot.platform.core.errors import PlatformError
from sandlot.platform.core.forges import Repository
from sandlot.platform.core.ports import Clock
from sandlot.platform.core.schedules import parse_schedule
from sandlot.platform.core.triggers import RuleState, TriggerRule, TriggerWhen
from sandlot.platform.forges.repositories import Repositories
from sandlot.platform.triggers.making import TaskMaking, filled
from sandlot.platform.triggers.rules import ADMIN

log = logging.getLogger(__name__)
INTERVAL_S = 15.0
LATE = timedelta(hours=1)  # a time that passed while no server ran is made up for, if it is not longer ago


class Schedules:
    """Makes the tasks of rules whose time has come; each time makes one task for each repository, whoever looks."""

    def __init__(self, *, making: TaskMaking, repositories: Repositories, clock: Clock) -> None:
        self._making, self._repositories, self._clock = making, repositories, clock
        self._began = clock()

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except PlatformError as error:
                log.warning("could not look at the rules' schedules: %s", error)
            await asyncio.sleep(INTERVAL_S)

    async def look(self) -> None:
        for state in await self._making.rules.list():
            if state.rule.when is TriggerWhen.CRON and state.rule.schedule and state.paused_at is None:
                await self._due(state)

    async def _due(self, state: RuleState) -> None:
        now, rule = self._clock(), state.rule
        known = state.resumed_at or state.created_at
        since = max(now - LATE, known) if known is not None else now - LATE
        at = parse_schedule(rule.schedule or "").last(now, since)
        if at is None:
            return
        for repository in await self._repositories_of(rule):
            key = f"cron-{rule.name}-{repository.id}-{at:%Y%m%d%H%M}"
            try:
                values: Mapping[str, str] = {"title": rule.name, "url": repository.url or "", "time": at.isoformat()}
                prompt = filled(rule.prompt or "", values)
                await self._making.create(rule, repository, prompt, key=key, title=rule.name)
            except PlatformError as error:
                log.warning("rule %s made no task for %s: %s", rule.name, repository.name, error)

    async def _repositories_of(self, rule: TriggerRule) -> list[Repository]:
        """A schedule names its repositories: none of them means none."""
        found = {repository.name: repository for repository in await self._repositories.list(ADMIN)}
        return [found[name] for name in rule.repositories if name in found]
