"""The audit log: what is written, who may read it, and how a change of it is found."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text
from tests.platform.fakes import ScriptedProvider
from tests.platform.world import Served, scripted

from sandlot.platform.audit.log import verify
from sandlot.platform.store import Database, SqlAudit


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with Served(tmp_path, scripted(), {"scripted": ScriptedProvider()}) as made:
        yield made


async def filled(served: Served) -> None:
    async with served.http() as http:
        for name in ("one", "two"):
            assert (await http.post("/repositories", json={"name": name})).status_code == 201
        await http.put("/budgets/user/ann", json={"cost_usd": 5})
        await http.get("/repositories")
        assert (await http.post("/repositories", json={"name": "one"})).status_code == 409


async def test_changes_are_written_with_who_made_them_and_reads_are_not(served: Served) -> None:
    await filled(served)
    bob = await served.key("bob")
    async with served.http(bob) as http:
        assert (await http.put("/budgets/user/bob", json={"cost_usd": 99})).status_code == 403
        assert (await http.get("/audit")).status_code == 403
    async with served.http() as http:
        records = (await http.get("/audit")).json()["records"]
        older = (await http.get("/audit", params={"before": 3})).json()["records"]
        found = (await http.get("/audit/check")).json()
    told = [(r["actor"], r["action"], r["target"], r["status"]) for r in reversed(records)]
    assert told == [
        ("admin", "POST /repositories", "/repositories", 201),
        ("admin", "POST /repositories", "/repositories", 201),
        ("admin", "PUT /budgets/{scope}/{subject}", "/budgets/user/ann", 204),
        ("bob", "PUT /budgets/{scope}/{subject}", "/budgets/user/bob", 403),
    ]
    assert records[1]["data"] == {"cost_usd": 5.0, "tokens": None}
    assert [r["seq"] for r in older] == [2, 1]
    assert found == {"records": 4, "digest": records[0]["digest"], "problem": None}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE platform_audit SET actor = 'mallory' WHERE seq = 2", "record 2 was changed"),
        ("DELETE FROM platform_audit WHERE seq = 2", "record 2 is missing"),
        ("UPDATE platform_audit SET previous = digest WHERE seq = 3", "record 3 does not follow"),
    ],
)
async def test_a_record_that_was_changed_or_taken_out_is_found(served: Served, change: str, words: str) -> None:
    await filled(served)
    database = Database.sqlite(served.place / "platform.db")
    try:
        assert (await verify(SqlAudit(database))).problem is None
        async with database.write("tamper") as connection:
            await connection.execute(text(change))
        found = await verify(SqlAudit(database))
    finally:
        await database.close()
    assert found.problem is not None and words in found.problem


async def test_a_log_that_was_cut_off_has_another_last_digest(served: Served) -> None:
    await filled(served)
    database = Database.sqlite(served.place / "platform.db")
    try:
        whole = await verify(SqlAudit(database))
        async with database.write("tamper") as connection:
            await connection.execute(text("DELETE FROM platform_audit WHERE seq = 3"))
        cut = await verify(SqlAudit(database))
    finally:
        await database.close()
    assert cut.problem is None and cut.digest != whole.digest
