"""What sandboxes used and went through, in the database. Samples get coarser with age, and go at last."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, cast, delete, func, insert, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from sandlot.engine.core.model import LifecycleMark, Sandbox, State, Usage
from sandlot.engine.store import records
from sandlot.engine.store.database import Database
from sandlot.engine.store.schema import lifecycle_marks, sandboxes, usage_samples

RAW_S, MINUTE_S, HOUR_S = 5, 60, 3600
KEPT = {  # how long samples of each width are kept, and what they become then
    RAW_S: (timedelta(hours=2), MINUTE_S),
    MINUTE_S: (timedelta(days=2), HOUR_S),
    HOUR_S: (timedelta(days=30), None),
}
MOST_MARKS = 1000
_columns = usage_samples.c


class SqlHistories:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, samples: Sequence[tuple[str, Usage]]) -> None:
        if not samples:
            return
        async with self._database.write("note what sandboxes use") as connection:
            await connection.execute(_new(connection), [_row(sandbox_id, usage) for sandbox_id, usage in samples])

    async def samples(self, sandbox_id: str, since: datetime | None, until: datetime | None) -> Sequence[Usage]:
        conditions = [_columns.sandbox_id == sandbox_id]
        if since is not None:
            conditions.append(_columns.at_ms >= _ms(since))
        if until is not None:
            conditions.append(_columns.at_ms <= _ms(until))
        query = select(usage_samples).where(*conditions).order_by(_columns.at_ms)
        async with self._database.read("read what a sandbox used") as connection:
            return [_usage(row) for row in (await connection.execute(query)).mappings()]

    async def roll_up(self, now: datetime) -> None:
        async with self._database.write("roll up what sandboxes used") as connection:
            for span_s, (kept, into_s) in KEPT.items():
                step = (into_s or span_s) * 1000
                before = _ms(now - kept) // step * step
                old = (_columns.span_s == span_s, _columns.at_ms < before)
                if into_s is not None:
                    await connection.execute(_merged(connection, old, into_s))
                await connection.execute(delete(usage_samples).where(*old))

    async def marks(self, sandbox_id: str) -> Sequence[LifecycleMark]:
        query = select(lifecycle_marks).where(lifecycle_marks.c.sandbox_id == sandbox_id)
        query = query.order_by(lifecycle_marks.c.id.desc()).limit(MOST_MARKS)
        async with self._database.read("read the life of a sandbox") as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [LifecycleMark(at=row["at"], kind=row["kind"], detail=row["detail"]) for row in reversed(rows)]

    async def forks(self, sandbox_id: str) -> Sequence[Sandbox]:
        query = select(sandboxes).where(sandboxes.c.source == sandbox_id).order_by(sandboxes.c.created_at)
        async with self._database.read("look for forks") as connection:
            return [
                records.sandbox(row, self._database.sealer)
                for row in (await connection.execute(query.limit(MOST_MARKS))).mappings()
            ]

    async def ended(self, team_id: str, *, since: datetime | None, limit: int) -> Sequence[Sandbox]:
        query = select(sandboxes).where(sandboxes.c.team_id == team_id, sandboxes.c.state == State.ENDED.value)
        if since is not None:
            query = query.where(sandboxes.c.ended_at >= since)
        query = query.order_by(sandboxes.c.ended_at.desc(), sandboxes.c.id).limit(limit)
        async with self._database.read("list ended sandboxes") as connection:
            return [records.sandbox(row, self._database.sealer) for row in (await connection.execute(query)).mappings()]


def _new(connection: AsyncConnection) -> Any:
    """A sample that is there already stays: two looks in one millisecond are one."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(usage_samples).on_conflict_do_nothing()


def _merged(connection: AsyncConnection, old: tuple[Any, ...], into_s: int) -> Any:
    """One row for each sandbox and span: CPU as it was on average, memory and disk at their highest."""
    start = (_columns.at_ms // (into_s * 1000) * (into_s * 1000)).label("start")
    whole = (cast(func.max(getattr(_columns, name)), BigInteger) for name in _WHOLE)
    found = select(_columns.sandbox_id, func.min(into_s), start, func.avg(_columns.cpu_used_pct), *whole).where(*old)
    names = ["sandbox_id", "span_s", "at_ms", "cpu_used_pct", *_WHOLE]
    return _new(connection).from_select(names, found.group_by(_columns.sandbox_id, start))


_WHOLE = ("cpu_count", "mem_used", "mem_total", "mem_cache", "disk_used", "disk_total")


def mark_of(old: Sandbox, new: Sandbox, at: datetime) -> Any:
    """The statement that notes this move; None if people need not hear of it."""
    match old.state, new.state:
        case State.CREATING, State.RUNNING:
            kind, detail = "created", None
        case State.PAUSING, State.PAUSED:
            kind, detail = "paused", new.pause_mode.value if new.pause_mode else None
        case State.RESUMING, State.RUNNING:
            kind, detail = "resumed", None
        case State.CAPTURING, State.RUNNING:
            kind, detail = "saved", None
        case State.STOPPING, State.ENDED:
            kind, detail = "ended", new.end_reason
        case _:
            return None
    return insert(lifecycle_marks).values(sandbox_id=new.id, at=at, kind=kind, detail=detail)


def forgotten(ids: Any) -> list[Any]:
    """The statements that forget all of these sandboxes."""
    return [
        delete(usage_samples).where(_columns.sandbox_id.in_(ids)),
        delete(lifecycle_marks).where(lifecycle_marks.c.sandbox_id.in_(ids)),
    ]


def _row(sandbox_id: str, usage: Usage) -> dict[str, Any]:
    whole = {name: getattr(usage, name) for name in _WHOLE}
    return {
        "sandbox_id": sandbox_id,
        "span_s": RAW_S,
        "at_ms": _ms(usage.at),
        "cpu_used_pct": usage.cpu_used_pct,
        **whole,
    }


def _usage(row: Any) -> Usage:
    whole = {name: int(row[name]) for name in _WHOLE}
    at = datetime.fromtimestamp(row["at_ms"] / 1000, UTC)
    return Usage(at=at, cpu_used_pct=round(row["cpu_used_pct"], 2), **whole)


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
