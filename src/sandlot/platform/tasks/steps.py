"""The steps of one run: written down before each begins and after it ended, tried again with growing pauses."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from sandlot.platform.core.errors import Busy, PlatformError, Unavailable
from sandlot.platform.core.ports import Clock
from sandlot.platform.core.task_ports import StepStore
from sandlot.platform.core.tasks import Entry, EntryKind, StepStatus, Task, TaskStep, steps_of
from sandlot.platform.tasks.timeline import Timeline

TRIES = 8
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 60.0
LONGEST_ASKED_S = 900.0  # how long a forge that names a time is waited for
Result = TypeVar("Result")
BeforeStep = Callable[[str, str], Awaitable[None]]
"""Called with "before" or "after" and the step's name, around each step. For tests that end the server there."""


async def no_step(_when: str, _name: str) -> None:
    pass


class RunSteps:
    """Of one run of one task. What is done is not done again, unless it is reset."""

    def __init__(
        self, task: Task, *, store: StepStore, timeline: Timeline, clock: Clock, hook: BeforeStep = no_step
    ) -> None:
        self._task, self._store, self._timeline, self._clock, self._hook = task, store, timeline, clock, hook
        self._rows: dict[tuple[int, str], TaskStep] = {}

    async def open(self, numbers: Sequence[int]) -> None:
        """Read what an earlier process noted of this run, and write what is to come."""
        self._rows = {
            (step.number, step.name): step for step in await self._store.of(self._task.id) if step.run == self._task.run
        }
        names = steps_of(self._task.spec)
        await self._put(
            *(self._row(number, name) for number in numbers for name in names if (number, name) not in self._rows)
        )

    def is_done(self, number: int, name: str) -> bool:
        return self._row(number, name).status is StepStatus.DONE

    def is_failed(self, number: int, name: str) -> bool:
        return self._row(number, name).status is StepStatus.FAILED

    async def reset(self, number: int, *names: str) -> None:
        """They have to be done again."""
        rows = [self._row(number, name) for name in names]
        begun = [row for row in rows if row.status is not StepStatus.PENDING]
        await self._put(*(replace(row, status=StepStatus.PENDING, problem=None) for row in begun))

    async def note(self, number: int, *names: str) -> None:
        """They are done already, without us."""
        rows, now = [self._row(number, name) for name in names], self._clock()
        left = [row for row in rows if row.status is not StepStatus.DONE]
        await self._put(*(replace(row, status=StepStatus.DONE, ended_at=now) for row in left))

    async def skip(self, number: int, *names: str) -> None:
        rows = [self._row(number, name) for name in names]
        left = [row for row in rows if row.status in (StepStatus.PENDING, StepStatus.RUNNING)]
        await self._put(*(replace(row, status=StepStatus.SKIPPED) for row in left))

    async def do(self, number: int, name: str, act: Callable[[], Awaitable[Result]]) -> Result:
        """Raises what it raised last. What may work later is tried again; what was refused is not."""
        for attempt in range(1, TRIES + 1):
            await self._hook("before", name)
            await self._begin(number, name, attempt)
            try:
                result = await act()
            except (Unavailable, Busy) as error:
                if attempt == TRIES:
                    await self._end(number, name, StepStatus.FAILED, str(error))
                    raise
                wait_s = pause_s(attempt, error.retry_after_s if isinstance(error, Unavailable) else 0)
                told = f"{error}; it is tried again in {wait_s:.0f} s"
                await self._timeline.add(self._task.id, _told(self._row(number, name), "waiting", told))
                await asyncio.sleep(wait_s)
            except PlatformError as error:
                await self._end(number, name, StepStatus.FAILED, str(error))
                raise
            else:
                await self._hook("after", name)
                await self._end(number, name, StepStatus.DONE, None)
                return result
        raise AssertionError("not reached")

    async def retried(self, act: Callable[[], Awaitable[Result]]) -> Result:
        """What is no step of its own, tried as often."""
        for attempt in range(1, TRIES + 1):
            try:
                return await act()
            except (Unavailable, Busy):
                if attempt == TRIES:
                    raise
                await asyncio.sleep(pause_s(attempt))
        raise AssertionError("not reached")

    async def fail(self, number: int, name: str, problem: str) -> None:
        """A step whose act ended well, but whose result does not let the run go on."""
        await self._end(number, name, StepStatus.FAILED, problem)

    async def _begin(self, number: int, name: str, attempt: int) -> None:
        now = self._clock()
        row = replace(
            self._row(number, name),
            status=StepStatus.RUNNING,
            attempt=attempt,
            started_at=now,
            ended_at=None,
            problem=None,
        )
        await self._put(row, *([_told(row, StepStatus.RUNNING.value, None)] if attempt == 1 else []))

    async def _end(self, number: int, name: str, status: StepStatus, problem: str | None) -> None:
        row = replace(self._row(number, name), status=status, ended_at=self._clock(), problem=problem)
        await self._put(row, _told(row, status.value, problem))

    async def _put(self, *news: TaskStep | Entry) -> None:
        """Steps, and what is told of them, in one transaction."""
        rows = [one for one in news if isinstance(one, TaskStep)]
        entries = self._timeline.bounded(*(one for one in news if isinstance(one, Entry)))
        self._rows |= {(row.number, row.name): row for row in rows}
        await self._store.put(*rows, entries=entries)
        if entries:
            self._timeline.changed(self._task.id)

    def _row(self, number: int, name: str) -> TaskStep:
        unknown = TaskStep(
            task_id=self._task.id, run=self._task.run, number=number, name=name, status=StepStatus.PENDING
        )
        return self._rows.get((number, name), unknown)


def _told(row: TaskStep, status: str, problem: str | None) -> Entry:
    data = {"name": row.name, "status": status, "attempt": row.attempt, "problem": problem}
    return Entry(kind=EntryKind.STEP, text=problem or "", data=data, attempt=row.number)


def pause_s(attempt: int, asked_s: float = 0.0) -> float:
    """Before the next try: doubled each time, not the same for everybody, and as long as was asked for."""
    grown = min(FIRST_WAIT_S * 2 ** (attempt - 1), LONGEST_WAIT_S)
    return max(random.uniform(grown / 2, grown), min(asked_s if asked_s > 5 else 0.0, LONGEST_ASKED_S))
