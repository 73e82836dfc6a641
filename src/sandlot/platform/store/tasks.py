"""Tasks in the database, with their steps and timelines. What is searched by has a column; the rest of a task is one document."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, and_, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sandlot.platform.core.errors import Conflict
from sandlot.platform.core.events import Event
from sandlot.platform.core.task_ports import TaskQuery
from sandlot.platform.core.tasks import STEPS, Entry, EntryKind, StepStatus, Task, TaskStep
from sandlot.platform.store.aggregates import AggregateRows, AggregateTable
from sandlot.platform.store.database import Database
from sandlot.platform.store.events import Route, append
from sandlot.platform.store.records import Row
from sandlot.platform.store.schema import task_steps, task_streams, tasks, timeline

PAGE = 200
_COLUMNS = frozenset({"id", "user_id", "status", "created_at", "lease_owner", "lease_until", "revision"})
_TASK: TypeAdapter[Task] = TypeAdapter(Task)


def _read(row: Row) -> Task:
    return _TASK.validate_python({**row["record"], **{name: row[name] for name in _COLUMNS}})


def _write(task: Task) -> dict[str, Any]:
    whole = _TASK.dump_python(task, mode="json")
    key = task.idempotency_key
    return {
        "id": task.id,
        "user_id": task.user_id,
        "status": task.status.value,
        "repository": task.spec.repository,
        "parent": task.spec.parent,
        "created_at": task.created_at,
        "once_key": f"{task.user_id}\n{key}" if key is not None else None,
        "lease_owner": task.lease_owner,
        "lease_until": task.lease_until,
        "record": {name: value for name, value in whole.items() if name not in _COLUMNS},
        "revision": task.revision,
    }


TABLE = AggregateTable(noun="task", table=tasks, read=_read, write=_write)


class SqlTasks(AggregateRows[Task]):
    def __init__(self, database: Database, route: Route = lambda _: ()) -> None:
        super().__init__(database, TABLE, route)

    async def by_key(self, user_id: str, key: str) -> Task | None:
        return await self.one(tasks.c.once_key == f"{user_id}\n{key}")

    async def query(self, wanted: TaskQuery) -> Sequence[Task]:
        """Labels and texts are compared here: the two kinds of database look into documents differently."""
        found: list[Task] = []
        after = wanted.after
        looks_inside = wanted.label is not None or wanted.text is not None
        while True:
            size = PAGE if looks_inside else wanted.limit
            page = await self.many(_select(wanted, after).limit(size))
            found += [task for task in page if _matches(task, wanted)]
            if wanted.limit is not None and len(found) >= wanted.limit:
                return found[: wanted.limit]
            if size is None or len(page) < size:
                return found
            after = (page[-1].created_at, page[-1].id)

    async def renew(self, task: str, owner: str, until: datetime) -> bool:
        change = update(tasks).where(tasks.c.id == task, tasks.c.lease_owner == owner)
        async with self._database.write(f"keep the lease of task {task!r}") as connection:
            return bool((await connection.execute(change.values(lease_until=until))).rowcount)

    async def remove(self, task: Task, *events: object) -> None:
        gone = delete(tasks).where(tasks.c.id == task.id, tasks.c.revision == task.revision)
        async with self._database.write(f"delete task {task.id!r}") as connection:
            if (await connection.execute(gone)).rowcount != 1:
                raise Conflict(f"task {task.id!r} was changed by another request; try again")
            await append(connection, self._route, [event for event in events if isinstance(event, Event)])


def _select(wanted: TaskQuery, after: tuple[datetime, str] | None) -> Any:
    conditions: list[ColumnElement[bool]] = []
    named = (
        (tasks.c.user_id, wanted.user_id),
        (tasks.c.repository, wanted.repository),
        (tasks.c.parent, wanted.parent),
    )
    conditions += [column == value for column, value in named if value is not None]
    if wanted.statuses is not None:
        conditions.append(tasks.c.status.in_(sorted(status.value for status in wanted.statuses)))
    if after is not None:
        at, last = after
        conditions.append(or_(tasks.c.created_at < at, and_(tasks.c.created_at == at, tasks.c.id < last)))
    return select(tasks).where(*conditions).order_by(tasks.c.created_at.desc(), tasks.c.id.desc())


def _matches(task: Task, wanted: TaskQuery) -> bool:
    if wanted.label is not None and wanted.label not in task.spec.labels:
        return False
    if wanted.text is None:
        return True
    inside = f"{task.id}\n{task.spec.title}\n{task.spec.prompt}".lower()
    return wanted.text.lower() in inside


class SqlTaskSteps:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, *steps: TaskStep, entries: Sequence[Entry] = ()) -> None:
        if not steps:
            return
        task = steps[0].task_id
        async with self._database.write(f"note a step of task {task!r}") as connection:
            for step in steps:
                await _put(connection, step)
            for entry in entries:
                await _add(connection, task, entry)

    async def of(self, task: str) -> Sequence[TaskStep]:
        last = select(func.max(task_steps.c.run)).where(task_steps.c.task_id == task).scalar_subquery()
        query = select(task_steps).where(task_steps.c.task_id == task, task_steps.c.run == last)
        async with self._database.read(f"read the steps of task {task!r}") as connection:
            rows = (await connection.execute(query)).mappings().all()
        found = [TaskStep(**{**row, "status": StepStatus(row["status"])}) for row in rows]
        return sorted(found, key=lambda step: (STEPS.index(step.name) if step.name in STEPS else 99, step.number))


async def _put(connection: AsyncConnection, step: TaskStep) -> None:
    values = {field.name: getattr(step, field.name) for field in fields(step)} | {"status": step.status.value}
    same = and_(*(task_steps.c[name] == values[name] for name in ("task_id", "run", "number", "name")))
    changed = await connection.execute(update(task_steps).where(same).values(values))
    if not changed.rowcount:
        await connection.execute(insert(task_steps), values)


class SqlTimeline:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, task: str, entries: Sequence[Entry], offsets: Mapping[str, int] = {}) -> Sequence[Entry]:
        async with self._database.write(f"write the timeline of task {task!r}") as connection:
            added = [await _add(connection, task, entry) for entry in entries]
            for stream, lines in offsets.items():
                await _note(connection, task, stream, lines)
        return added

    async def after(
        self, task: str, seq: int, limit: int, kinds: Collection[EntryKind] | None = None
    ) -> Sequence[Entry]:
        query = select(timeline).where(timeline.c.task_id == task, timeline.c.seq > seq)
        if kinds is not None:
            query = query.where(timeline.c.kind.in_(sorted(kind.value for kind in kinds)))
        async with self._database.read(f"read the timeline of task {task!r}") as connection:
            rows = (await connection.execute(query.order_by(timeline.c.seq).limit(limit))).mappings()
            return [_entry(row) for row in rows]

    async def offset(self, task: str, stream: str) -> int:
        query = select(task_streams.c.lines).where(task_streams.c.task_id == task, task_streams.c.stream == stream)
        async with self._database.read(f"read the timeline of task {task!r}") as connection:
            return int((await connection.execute(query)).scalar_one_or_none() or 0)


async def _add(connection: AsyncConnection, task: str, entry: Entry) -> Entry:
    values = {
        "task_id": task,
        "at": entry.at,
        "kind": entry.kind.value,
        "attempt": entry.attempt,
        "text": _plain(entry.text),
        "data": _plain(dict(entry.data)),
        "raw": _plain(entry.raw),
    }
    seq = (await connection.execute(insert(timeline).returning(timeline.c.seq), values)).scalar_one()
    return Entry(
        **{name: getattr(entry, name) for name in ("kind", "text", "data", "raw", "at", "attempt")}, seq=int(seq)
    )


async def _note(connection: AsyncConnection, task: str, stream: str, lines: int) -> None:
    same = and_(task_streams.c.task_id == task, task_streams.c.stream == stream)
    if not (await connection.execute(update(task_streams).where(same).values(lines=lines))).rowcount:
        await connection.execute(insert(task_streams), {"task_id": task, "stream": stream, "lines": lines})


def _entry(row: Row) -> Entry:
    known = {name: row[name] for name in ("seq", "at", "attempt", "text", "raw")}
    return Entry(**known, kind=EntryKind(row["kind"]), data=dict(row["data"]))


def _plain(value: Any) -> Any:
    """Without what PostgreSQL cannot keep: NUL characters, and halves of characters."""
    if isinstance(value, str):
        return value.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {str(_plain(name)): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
