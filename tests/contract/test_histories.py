# ruff: noqa: F401, F811
"""What sandboxes used and went through, on SQLite and on a real PostgreSQL: kept, made coarser, forgotten."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.contract.test_store import NOW, OTHER, a_sandbox, database

from sandlot.engine.control.usage_history import thinned
from sandlot.engine.core.model import Sandbox, State, Usage
from sandlot.engine.store import Database, SqlHistories, SqlSandboxes


def usage(seconds: float, cpu: float = 50.0, memory: int = 1 << 33) -> Usage:
    return Usage(
        at=NOW + timedelta(seconds=seconds),
        cpu_count=2,
        cpu_used_pct=cpu,
        mem_used=memory,
        mem_total=1 << 34,
        mem_cache=1,
        disk_used=1 << 40,
        disk_total=1 << 41,
    )


@pytest.fixture
def histories(database: Database) -> SqlHistories:
    return SqlHistories(database)


async def test_samples_come_back_in_order_and_between_two_moments(histories: SqlHistories) -> None:
    await histories.add([("i1", usage(10)), ("i2", usage(0)), ("i1", usage(5))])
    await histories.add([("i1", usage(10, cpu=1)), ("i1", usage(15))])
    await histories.add([])
    found = await histories.samples("i1", None, None)
    assert [round((one.at - NOW).total_seconds()) for one in found] == [5, 10, 15]
    assert found[1].cpu_used_pct == 50 and found[0].disk_total == 1 << 41 and found[0].mem_used == 1 << 33
    until = NOW + timedelta(seconds=12)
    assert len(await histories.samples("i1", NOW + timedelta(seconds=7), until)) == 1


async def test_old_samples_become_minutes_then_hours_then_nothing(histories: SqlHistories) -> None:
    await histories.add([("i1", usage(second, cpu=second % 60, memory=second)) for second in range(0, 7200, 5)])
    await histories.add([("i2", usage(0))])
    before = await histories.samples("i1", None, None)
    await histories.roll_up(NOW + timedelta(hours=3))
    found = await histories.samples("i1", None, None)
    fine = [one for one in found if one.at >= NOW + timedelta(hours=1)]
    coarse = [one for one in found if one.at < NOW + timedelta(hours=1, minutes=-1)]
    assert len(fine) == pytest.approx(720, abs=12) and len(coarse) == pytest.approx(60, abs=2)
    assert max(one.mem_used for one in coarse) == pytest.approx(3595, abs=60), "the highest of each minute"
    assert 20 < coarse[10].cpu_used_pct < 40, "and the average of the CPU"
    await histories.roll_up(NOW + timedelta(hours=3))
    assert await histories.samples("i1", None, None) == found, "twice is once"
    await histories.roll_up(NOW + timedelta(days=4))
    assert 2 <= len(await histories.samples("i1", None, None)) <= 3
    assert len(await histories.samples("i2", None, None)) == 1
    await histories.roll_up(NOW + timedelta(days=40))
    assert await histories.samples("i1", None, None) == [] and before


async def test_moves_are_marked_with_the_row_and_forgotten_with_it(
    database: Database,
    histories: SqlHistories,
) -> None:
    moment = [NOW]
    sandboxes = SqlSandboxes(database, lambda: moment[0])
    row = a_sandbox(state=State.CREATING)
    await sandboxes.add(row)
    for state in (State.RUNNING, State.PAUSING, State.PAUSED, State.RESUMING, State.RUNNING, State.STOPPING):
        moment[0] += timedelta(seconds=1)
        row = await sandboxes.swap(row, replace(row, state=state, end_reason="timeout"))
    stale = row
    row = await sandboxes.swap(row, replace(row, state=State.ENDED, ended_at=NOW))
    with pytest.raises(Exception, match="changed by somebody else"):
        await sandboxes.swap(stale, replace(stale, state=State.ENDED))
    found = await histories.marks(row.id)
    assert [(mark.kind, mark.detail) for mark in found] == [
        ("created", None),
        ("paused", None),
        ("resumed", None),
        ("ended", "timeout"),
    ]
    assert found[0].at == NOW + timedelta(seconds=1)
    await histories.add([(row.id, usage(0)), ("other", usage(0))])
    assert await sandboxes.purge(NOW + timedelta(hours=1)) == 1
    assert await histories.marks(row.id) == [] == await histories.samples(row.id, None, None)
    assert len(await histories.samples("other", None, None)) == 1


async def test_forks_and_ended_sandboxes_are_found(database: Database, histories: SqlHistories) -> None:
    sandboxes = SqlSandboxes(database)
    rows = [
        a_sandbox("i1", state=State.ENDED, ended_at=NOW),
        a_sandbox("i2", source="i1"),
        a_sandbox("i3", source="i1", state=State.ENDED, ended_at=NOW + timedelta(seconds=5)),
        a_sandbox("i4", team_id=OTHER.id, state=State.ENDED, ended_at=NOW),
    ]
    for row in rows:
        await sandboxes.add(row)
    assert ids(await histories.forks("i1")) == ["i2", "i3"]
    assert ids(await histories.ended("team_1", since=None, limit=10)) == ["i3", "i1"]
    assert ids(await histories.ended("team_1", since=NOW + timedelta(seconds=1), limit=10)) == ["i3"]
    assert ids(await histories.ended("team_1", since=None, limit=1)) == ["i3"]


def test_many_samples_are_thinned_and_keep_their_peaks(tmp_path: Path) -> None:
    many = [usage(second, cpu=10, memory=second) for second in range(5000)]
    few = thinned(many, 2000)
    assert len(few) == 1667 and few[-1].mem_used == 4999 and few[0].cpu_used_pct == 10
    assert thinned(many[:10], 2000) == many[:10]


def ids(rows: object) -> list[str]:
    return [row.id for row in rows if isinstance(row, Sandbox)]  # type: ignore[attr-defined]
