"""What a store of secrets does, on SQLite and on a real PostgreSQL: values go in sealed and come out for requests alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select
from tests.contract.test_store import a_sandbox
from tests.databases import KINDS, nothing_in

from sandlot.engine.core.errors import Conflict
from sandlot.engine.core.model import EgressProxy, HeaderRule, NetworkPolicy, Secret, Team
from sandlot.engine.store import Database, SqlAccess, SqlSandboxes, SqlSecrets
from sandlot.engine.store.schema import sandboxes, secrets
from sandlot.sql import sealing

NOW = datetime(2030, 5, 1, 12, 30, 15, tzinfo=UTC)
CANARY = "canary-77aa01"


@pytest.fixture(params=KINDS)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with nothing_in(Database, request, tmp_path) as found:
        await found.migrate()
        for number in (1, 2):
            await SqlAccess(found).add_team(Team(id=f"team_{number}", name=f"{number}", created_at=NOW))
        yield found


def a_secret(name: str, number: int = 1, team_id: str = "team_1") -> Secret:
    at = NOW + timedelta(seconds=number)
    return Secret(id=f"sec_{team_id}{name}", team_id=team_id, name=name, version=1, created_at=at, updated_at=at)


async def test_a_secret_is_kept_described_given_a_new_value_and_deleted(database: Database) -> None:
    store, one = SqlSecrets(database), a_secret("token")
    assert await store.add(one, CANARY, most=10)
    assert await store.find("team_1", "token") == one == await store.find("team_1", one.id)
    assert await store.find("team_2", "token") is None and await store.find("team_2", one.id) is None
    assert await store.values("team_1", ["token", "none"]) == {"token": CANARY}
    assert await store.values("team_2", ["token"]) == {}
    await store.touch("team_1", ["token"], NOW)
    two = replace(one, version=2, metadata={"a": "b"})
    assert await store.replace(two, "second") and not await store.replace(two, "lost the race")
    assert await store.find("team_1", "token") == replace(two, last_used_at=NOW)
    assert await store.values("team_1", ["token"]) == {"token": "second"}
    assert await store.delete(one.id) and not await store.delete(one.id)
    assert await store.values("team_1", ["token"]) == {}


async def test_names_are_of_one_team_and_a_team_has_so_many(database: Database) -> None:
    store = SqlSecrets(database)
    assert await store.add(a_secret("a"), "x", most=2) and await store.add(a_secret("b"), "x", most=2)
    assert not await store.add(a_secret("c"), "x", most=2)
    assert await store.add(a_secret("a", team_id="team_2"), "y", most=2)
    with pytest.raises(Conflict, match="already"):
        await store.add(replace(a_secret("a"), id="sec_other"), "x", most=9)
    assert await store.values("team_2", ["a"]) == {"a": "y"}


async def test_pages_lead_from_one_to_the_next(database: Database) -> None:
    store = SqlSecrets(database)
    for number in range(5):
        await store.add(a_secret(f"n{number}", number // 2), "x", most=10)
    seen: list[str] = []
    after = None
    while page := await store.page("team_1", limit=2, after=after):
        seen += [each.name for each in page]
        after = (page[-1].created_at, page[-1].id)
    assert seen == ["n0", "n1", "n2", "n3", "n4"]


async def test_nothing_that_may_be_a_credential_is_in_clear_and_a_new_key_seals_it_anew(database: Database) -> None:
    await SqlSecrets(database).add(a_secret("token"), CANARY, most=10)
    policy = NetworkPolicy(
        rules=(HeaderRule(domain="a.example", headers=(("X", CANARY),)),),
        egress_proxy=EgressProxy(host="p.example", port=1080, username="u", password=CANARY),
        secrets={"token": CANARY},
    )
    store = SqlSandboxes(database)
    await store.add(a_sandbox(network=policy))
    assert (found := await store.get("i1")) and found.network == replace(policy, secrets={})

    async def stored() -> str:
        async with database.read("look at what is there") as connection:
            rows = [*(await connection.execute(select(secrets))), *(await connection.execute(select(sandboxes)))]
        return repr(rows)

    before = await stored()
    assert CANARY not in before
    place = database._directory
    if place is not None:  # a database that was not opened for a data directory has a key of its own
        sealing.renew(place)
    assert await database.seal_anew() == 2
    assert CANARY not in (after := await stored()) and after != before
    assert (again := await store.get("i1")) and again.network.rules == policy.rules


async def test_a_team_goes_with_its_secrets(database: Database) -> None:
    await SqlSecrets(database).add(a_secret("token", team_id="team_2"), CANARY, most=10)
    assert await SqlAccess(database).remove_team("team_2")
