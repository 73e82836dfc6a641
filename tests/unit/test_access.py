"""Teams and keys, on the real store."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.fakes import FakeClock

from sandlot.engine.control.access import Access
from sandlot.engine.core.errors import Conflict, InvalidRequest, NotFound, Unauthorized
from sandlot.engine.store import Database, SqlAccess


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlAccess]:
    database = Database.sqlite(tmp_path / "sandlot.db")
    await database.migrate()
    yield SqlAccess(database)
    await database.close()


@pytest.fixture
def access(store: SqlAccess, clock: FakeClock) -> Access:
    return Access(store=store, clock=clock)


async def test_the_first_team_is_made_once(access: Access, store: SqlAccess) -> None:
    first = await access.ensure_first_team()
    assert await access.ensure_first_team() == first
    assert await store.teams() == [first]


async def test_a_key_has_the_form_that_the_sdks_check_and_lets_its_team_in(access: Access) -> None:
    team = await access.ensure_first_team()
    key, secret = await access.create_key(team.id, "laptop")
    assert re.fullmatch(r"e2b_[0-9a-f]{40}", secret)
    caller = await access.authenticate(secret)
    assert (caller.team, caller.key.id) == (team, key.id)


async def test_the_secret_is_not_kept(access: Access, tmp_path: Path) -> None:
    team = await access.ensure_first_team()
    key, secret = await access.create_key(team.id, "laptop")
    assert len(key.hint) < 16
    for file in tmp_path.iterdir():
        assert secret.removeprefix("e2b_").encode() not in file.read_bytes()


@pytest.mark.parametrize("secret", [None, "", "e2b_" + "0" * 40, "nonsense", "\x00", "\ud800", "é" * 600])
async def test_no_key_and_unknown_keys_are_unauthorized(access: Access, secret: str | None) -> None:
    await access.ensure_first_team()
    with pytest.raises(Unauthorized) as failure:
        await access.authenticate(secret)
    assert not secret or secret not in str(failure.value)


async def test_a_revoked_key_stops_working_at_once(access: Access) -> None:
    team = await access.ensure_first_team()
    key, secret = await access.create_key(team.id, "laptop")
    await access.authenticate(secret)
    await access.revoke(key.id)
    with pytest.raises(Unauthorized):
        await access.authenticate(secret)
    with pytest.raises(NotFound):
        await access.revoke(key.id)
    (listed,) = await access.keys(team.id)
    assert listed.revoked_at is not None


async def test_a_key_revoked_by_another_process_stops_working_soon(
    access: Access, store: SqlAccess, clock: FakeClock
) -> None:
    team = await access.ensure_first_team()
    key, secret = await access.create_key(team.id, "laptop")
    await access.authenticate(secret)
    await Access(store=store, clock=clock).revoke(key.id)
    clock.advance(5)
    with pytest.raises(Unauthorized):
        await access.authenticate(secret)


async def test_a_team_revokes_only_its_own_keys(access: Access) -> None:
    team = await access.ensure_first_team()
    key, secret = await access.create_key(team.id, "laptop")
    with pytest.raises(NotFound):
        await access.revoke(key.id, team_id="team_other")
    await access.authenticate(secret)


async def test_the_last_use_is_noted_once_a_minute(access: Access, clock: FakeClock) -> None:
    team = await access.ensure_first_team()
    _, secret = await access.create_key(team.id, "laptop")
    first = clock.now
    await asyncio.gather(*(access.authenticate(secret) for _ in range(5)))
    clock.advance(59)
    await access.authenticate(secret)
    assert (await access.keys())[0].last_used_at == first
    clock.advance(1)
    await access.authenticate(secret)
    assert (await access.keys())[0].last_used_at == first + timedelta(minutes=1)


async def test_keys_need_a_name_and_a_team_that_exists(access: Access) -> None:
    team = await access.ensure_first_team()
    for name in ("", "  ", "x" * 129):
        with pytest.raises(InvalidRequest):
            await access.create_key(team.id, name)
    with pytest.raises(Conflict):
        await access.create_key("team_other", "laptop")
