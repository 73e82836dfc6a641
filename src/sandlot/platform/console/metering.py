"""Counting what sandboxes use, for the page about that: looks at all of them every so often, and adds up hours by day and user.

A sandbox that ran is counted from its start to its end where the provider remembers both. A pause is noticed at the next look, so
each may be wrong by one interval.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sandlot.platform.core.console import Inspectable, Remembering
from sandlot.platform.core.errors import PlatformError
from sandlot.platform.core.model import Session
from sandlot.platform.core.ports import Clock, SessionStore
from sandlot.platform.core.task_ports import TaskQuery, TaskStore
from sandlot.platform.core.tasks import Task
from sandlot.platform.core.usage import UsageAmount, UsageKey, UsageStore
from sandlot.platform.providers.health import ProviderRegistry

log = logging.getLogger(__name__)
INTERVAL_S = 15.0
LONGEST_GAP = timedelta(minutes=10)  # what nobody looked at for longer is not counted: nobody knows whether it ran
OVERLAP = timedelta(minutes=5)  # how far back ended ones are looked for
METERS_KEPT = timedelta(days=7)
MOST_TASKS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A sandbox at one look. `until`: when it stopped running; None: it runs."""

    id: str
    started_at: datetime
    cpu_count: int
    memory_mb: int
    until: datetime | None = None
    is_paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterStores:
    usage: UsageStore
    sessions: SessionStore
    tasks: TaskStore


class UsageMeter:
    """`default`: at this provider everything is counted; at others, what belongs to sessions."""

    def __init__(self, *, stores: MeterStores, providers: ProviderRegistry, default: str, clock: Clock) -> None:
        self._stores, self._providers, self._default, self._clock = stores, providers, default, clock
        self._looked_at: dict[str, datetime] = {}

    async def run(self, interval_s: float = INTERVAL_S) -> None:
        while True:
            await asyncio.sleep(interval_s)
            for name in self._providers.all:
                try:
                    await self.count(name)
                except PlatformError as error:
                    log.info("could not count what sandboxes of provider %s use: %s", name, error)

    async def count(self, provider: str) -> None:
        """Add up what was used since the last look."""
        now = self._clock()
        found = await self._look(provider, now)
        if not found:
            return
        meters = await self._stores.usage.meters(provider)
        tasks = await self._tasks_by_session()
        amounts: dict[UsageKey, UsageAmount] = {}
        until: dict[str, datetime] = {}
        for sighting in found:
            known = meters.get(sighting.id)
            if known is not None and sighting.until is not None and known >= sighting.until:
                continue  # counted to its end
            session = await self._stores.sessions.of_provider_sandbox(sighting.id, include_ended=True)
            if session is None and provider != self._default:
                continue
            until[sighting.id] = sighting.until or now
            for key, amount in _charges(sighting, known, now, session, tasks):
                amounts[key] = amounts.get(key, UsageAmount()).plus(amount)
        await self._stores.usage.charge(provider, amounts, until)
        await self._stores.usage.forget_meters(now - METERS_KEPT)

    async def _look(self, provider: str, now: datetime) -> Sequence[Sighting]:
        async with self._providers.calling(provider) as calling:
            if not isinstance(calling, Inspectable):
                return ()
            seen = await calling.inspection.sandboxes()
            since = self._looked_at.get(provider, now) - OVERLAP
            remembers = isinstance(calling.inspection, Remembering)
            over = await calling.inspection.ended(since, 1000) if remembers else ()  # type: ignore[attr-defined]
        self._looked_at[provider] = now
        return [
            *(
                Sighting(
                    id=one.id,
                    started_at=one.started_at,
                    cpu_count=one.cpu_count,
                    memory_mb=one.memory_mb,
                    is_paused=one.is_paused,
                )
                for one in seen
            ),
            *(
                Sighting(
                    id=one.id,
                    started_at=one.started_at,
                    cpu_count=one.cpu_count,
                    memory_mb=one.memory_mb,
                    until=one.ended_at or now,
                )
                for one in over
            ),
        ]

    async def _tasks_by_session(self) -> Mapping[str, Task]:
        found = await self._stores.tasks.query(TaskQuery(limit=MOST_TASKS))
        return {attempt.session: task for task in found for attempt in task.attempts if attempt.session}


def _charges(
    sighting: Sighting, known: datetime | None, now: datetime, session: Session | None, tasks: Mapping[str, Task]
) -> Iterator[tuple[UsageKey, UsageAmount]]:
    task = tasks.get(session.id) if session is not None else None
    agent = next((one.agent for one in task.attempts if session and one.session == session.id), "") if task else ""

    def key(at: datetime) -> UsageKey:
        return UsageKey(
            day=at.astimezone(UTC).date().isoformat(),
            user_id=session.user_id if session is not None else "",
            repository=task.spec.repository if task is not None else "",
            agent=agent or (session.agent_type or "" if session is not None else ""),
        )

    end = min(sighting.until or now, now)
    if known is None:
        yield key(max(sighting.started_at, end - LONGEST_GAP)), UsageAmount(starts=1)
    if sighting.is_paused:
        return
    for start, stop in by_day(max(known or sighting.started_at, sighting.started_at, end - LONGEST_GAP), end):
        seconds = (stop - start).total_seconds()
        yield (
            key(start),
            UsageAmount(
                seconds=seconds,
                cpu_s=seconds * sighting.cpu_count,
                memory_gib_s=seconds * sighting.memory_mb / 1024,
            ),
        )


def by_day(start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """The parts of a time that are in one day each."""
    start, end = start.astimezone(UTC), end.astimezone(UTC)
    while start < end:
        midnight = datetime(start.year, start.month, start.day, tzinfo=UTC) + timedelta(days=1)
        yield start, min(midnight, end)
        start = midnight
