"""The seams of tasks: where their records, steps and timelines are kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sandlot.platform.core.ports import AggregateStore
from sandlot.platform.core.tasks import Entry, EntryKind, Task, TaskStatus, TaskStep


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskQuery:
    """Which tasks are wanted. What is None does not count."""

    user_id: str | None = None
    statuses: Collection[TaskStatus] | None = None
    repository: str | None = None
    label: str | None = None
    text: str | None = None  # in the title or the prompt
    parent: str | None = None
    limit: int | None = None
    after: tuple[datetime, str] | None = None


class TaskStore(AggregateStore[Task], Protocol):
    async def by_key(self, user_id: str, key: str) -> Task | None:
        """The one that was created with this idempotency key."""

    async def query(self, wanted: TaskQuery) -> Sequence[Task]:
        """Newest first; `after` continues a page."""

    async def renew(self, task: str, owner: str, until: datetime) -> bool:
        """Keep the lease. False if another process has it. Does not change the revision."""

    async def remove(self, task: Task, *events: object) -> None:
        """Forget it, with its steps and its timeline. Raises `Conflict` if it changed meanwhile."""


class StepStore(Protocol):
    async def put(self, *steps: TaskStep, entries: Sequence[Entry] = ()) -> None:
        """Write them: added, or changed if there is one of this run, attempt and name; in one transaction with what is told of them."""

    async def of(self, task: str) -> Sequence[TaskStep]:
        """Those of the last run, in their order."""


class TimelineStore(Protocol):
    async def append(self, task: str, entries: Sequence[Entry], offsets: Mapping[str, int] = {}) -> Sequence[Entry]:
        """Add entries, and note how far streams were read, in one transaction. Returns them with their numbers."""

    async def after(
        self, task: str, seq: int, limit: int, kinds: Collection[EntryKind] | None = None
    ) -> Sequence[Entry]:
        """In their order."""

    async def offset(self, task: str, stream: str) -> int:
        """How far a stream was read; 0 at first."""
