# ruff: noqa: F401, F811
"""The egress log in the database, on SQLite and on a real PostgreSQL: bounded for each sandbox, of one team, forgotten in time."""

from __future__ import annotations

from datetime import timedelta

from tests.contract.test_store import NOW, database

from sandlot.engine.core.model import EgressEntry
from sandlot.engine.store import Database, SqlEgress


def an_entry(host: str, sandbox_id: str = "i1", connections: int = 1) -> EgressEntry:
    return EgressEntry(
        sandbox_id=sandbox_id,
        at=NOW,
        host=host,
        port=443,
        allowed=True,
        connections=connections,
        bytes_out=1 << 40,
        bytes_in=2,
        rule="*.example.com",
        secrets=("token",),
    )


async def test_entries_come_back_in_pages_to_their_team_alone(database: Database) -> None:
    store = SqlEgress(database)
    await store.add("team_1", "i1", [an_entry("a"), an_entry("b"), an_entry("c")], 0, NOW)
    first, left_out = await store.page("team_1", "i1", after=0, limit=2)
    rest, _ = await store.page("team_1", "i1", after=first[-1][0], limit=2)
    assert [entry for _, entry in [*first, *rest]] == [an_entry("a"), an_entry("b"), an_entry("c")] and left_out == 0
    assert await store.page("team_2", "i1", after=0, limit=9) == ([], 0)


async def test_a_sandbox_has_so_many_rows_and_the_rest_is_counted(database: Database) -> None:
    store = SqlEgress(database, most=3)
    await store.add("team_1", "i1", [an_entry(str(n), connections=2) for n in range(5)], 10, NOW)
    await store.add("team_1", "i1", [an_entry("x")], 0, NOW)
    found, left_out = await store.page("team_1", "i1", after=0, limit=100)
    assert len(found) == 3 and left_out == 2 * 2 + 10 + 1
    await store.add("team_1", "i2", [an_entry("y", "i2")], 0, NOW)
    assert len((await store.page("team_1", "i2", after=0, limit=9))[0]) == 1


async def test_what_is_old_is_forgotten(database: Database) -> None:
    store = SqlEgress(database, most=1)
    await store.add("team_1", "i1", [an_entry("a"), an_entry("b")], 0, NOW)
    assert await store.purge(NOW) == 0 and await store.purge(NOW + timedelta(seconds=1)) == 1
    assert await store.page("team_1", "i1", after=0, limit=9) == ([], 0)
