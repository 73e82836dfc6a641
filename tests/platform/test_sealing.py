"""Secrets in the platform's database: sealed, opened again, and sealed with another key."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import text

from sandlot.platform.core.errors import ConfigurationError
from sandlot.platform.core.forges import ForgeKind, Repository
from sandlot.platform.core.model import Session, SessionStatus
from sandlot.platform.store import Database, SqlRepositories, SqlSessions
from sandlot.sql import sealing
from sandlot.sql.sealing import FILE, Sealer

CANARY = "canary-5d1f0c"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def session() -> Session:
    return Session(
        id="sbx_s",
        user_id="ada",
        session_id="s",
        status=SessionStatus.QUEUED,
        provider="local",
        timeout_s=60,
        created_at=NOW,
        last_used_at=NOW,
        envs={"API_KEY": CANARY},
    )


def repository() -> Repository:
    return Repository(
        id="rep_1",
        name="app",
        forge=ForgeKind.REMOTE,
        url="https://git.example.org/app",
        default_branch="main",
        created_at=NOW,
        token=CANARY,
    )


async def filled(place: Path) -> Database:
    database = Database.at(place, None)
    await database.migrate()
    await SqlSessions(database).add(session())
    await SqlRepositories(database).add(repository())
    return database


async def check(database: Database) -> None:
    found = await SqlSessions(database).get("sbx_s")
    assert found is not None and dict(found.envs) == {"API_KEY": CANARY}
    kept = await SqlRepositories(database).by_name("app")
    assert kept is not None and kept.token == CANARY


def bytes_of(place: Path) -> bytes:
    return b"".join(path.read_bytes() for path in place.rglob("*") if path.is_file())


async def test_variables_and_tokens_are_nowhere_in_clear(tmp_path: Path) -> None:
    database = await filled(tmp_path)
    await check(database)
    await database.close()
    assert CANARY.encode() not in bytes_of(tmp_path)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    again = Database.at(tmp_path, None)
    await check(again)
    await again.close()


async def test_a_change_of_something_else_keeps_them(tmp_path: Path) -> None:
    from dataclasses import replace

    database = await filled(tmp_path)
    store = SqlSessions(database)
    found = await store.get("sbx_s")
    assert found is not None
    await store.swap(found, replace(found, status=SessionStatus.STARTING))
    await check(database)
    await database.close()


async def test_what_was_stored_before_there_were_keys_is_read(tmp_path: Path) -> None:
    database = await filled(tmp_path)
    async with database.write("as an older version did") as connection:
        await connection.execute(text("UPDATE platform_repositories SET token = :token"), {"token": CANARY})
    await check(database)
    await database.close()


async def test_a_new_key_seals_everything_and_the_old_one_is_gone(tmp_path: Path) -> None:
    database = await filled(tmp_path)
    before = (tmp_path / FILE).read_text()
    sealing.renew(tmp_path)
    assert await database.seal_anew() == 2
    sealing.forget_old(tmp_path)
    await check(database)
    await database.close()
    after = (tmp_path / FILE).read_text()
    assert len(after.split()) == 1 and after.split()[0] not in before
    again = Database.at(tmp_path, None)
    await check(again)
    await again.close()


async def test_without_its_key_a_value_is_refused_with_a_sentence(tmp_path: Path) -> None:
    database = await filled(tmp_path)
    await database.close()
    (tmp_path / FILE).write_text("")
    broken = Database.at(tmp_path, None)
    with pytest.raises(ConfigurationError, match="restore it"):
        await SqlRepositories(broken).by_name("app")
    (tmp_path / FILE).unlink()
    with pytest.raises(ConfigurationError, match="restore that file"):
        await SqlRepositories(broken).by_name("app")
    await broken.close()


def test_two_that_start_at_once_have_the_same_key(tmp_path: Path) -> None:
    first, second = Sealer.at(tmp_path), Sealer.at(tmp_path)
    assert second.open(first.seal({"a": [1]})) == {"a": [1]}
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
