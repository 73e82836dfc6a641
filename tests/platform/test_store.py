"""What the platform's store does, on SQLite and on a real PostgreSQL; and what every provider does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from tests.databases import KINDS, nothing_in

from sandlot.platform.core.errors import Conflict
from sandlot.platform.core.model import Event, EventType, Scope, Session, SessionStatus, UserKey
from sandlot.platform.store import Database, SqlDeliveries, SqlEvents, SqlKeys, SqlSessions
from sandlot.platform.store.schema import VERSION_TABLE, metadata

NOW = datetime(2030, 5, 1, 12, 30, 15, 123456, tzinfo=UTC)


@pytest.fixture(params=KINDS)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with nothing_in(Database, request, tmp_path) as found:
        await found.migrate()
        yield found


def session(name: str = "s", **changes: object) -> Session:
    values: dict[str, object] = {
        "id": f"sbx_{name}",
        "user_id": "ada",
        "session_id": name,
        "status": SessionStatus.QUEUED,
        "provider": "p",
        "timeout_s": 60,
        "created_at": NOW,
        "last_used_at": NOW,
        "envs": {"A": "ü"},
        "metadata": {"k": "v"},
        "queued_at": NOW,
    }
    return Session(**{**values, **changes})  # type: ignore[arg-type]


def event(kind: EventType = EventType.CREATED, **changes: object) -> Event:
    values: dict[str, object] = {
        "at": NOW,
        "user_id": "ada",
        "sandbox_id": "sbx_s",
        "session_id": "s",
        "data": {"n": 1},
    }
    return Event(type=kind, **{**values, **changes})  # type: ignore[arg-type]


async def test_migrations_lead_to_the_declared_tables_beside_anybody_elses(database: Database) -> None:
    await database.migrate()  # twice is fine

    def differences(connection: object) -> list[object]:
        options = {
            "version_table": VERSION_TABLE,
            "include_name": lambda name, kind, _: kind != "table" or name in ours,
        }
        ours = set(metadata.tables)
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))  # type: ignore[arg-type]

    async with database.read("compare") as connection:
        assert await connection.run_sync(differences) == []


async def test_the_identity_is_made_once(database: Database) -> None:
    assert await database.identity() == await database.identity()


async def test_sessions_are_kept_whole_and_changed_by_one_at_a_time(database: Database) -> None:
    store = SqlSessions(database)
    await store.add(session(), event())
    found = await store.get("sbx_s")
    assert found is not None and replace(found, envs=dict(found.envs), metadata=dict(found.metadata)) == session()
    assert await store.by_name("ada", "s") is not None and await store.by_name("bob", "s") is None
    with pytest.raises(Conflict):
        await store.add(session(id="sbx_second"), event())
    running = await store.swap(found, replace(found, status=SessionStatus.RUNNING), event(EventType.READY))
    assert running.revision == 1
    with pytest.raises(Conflict):
        await store.swap(found, replace(found, status=SessionStatus.FAILED), event(EventType.ERROR))
    assert [one.type for one in await SqlEvents(database).after(0, 10)] == [EventType.CREATED, EventType.READY]
    await store.touch("sbx_s", NOW + timedelta(seconds=5))
    await store.swap(running, replace(running, status=SessionStatus.DELETED, ended_at=NOW))
    kept = await store.get("sbx_s")
    assert kept is not None and kept.last_used_at == NOW + timedelta(seconds=5)
    await store.add(session(id="sbx_third"))  # the name is free again
    assert await store.purge(NOW + timedelta(seconds=1)) == 1


async def test_sessions_are_listed_by_user_in_pages(database: Database) -> None:
    store = SqlSessions(database)
    for number in range(5):
        await store.add(session(str(number), created_at=NOW + timedelta(seconds=number // 2)))
    await store.add(session("x", user_id="bob"))
    seen: list[str] = []
    after = None
    while page := await store.query(user_id="ada", statuses=[SessionStatus.QUEUED], limit=2, after=after):
        seen += [one.session_id for one in page]
        after = (page[-1].created_at, page[-1].id)
    assert seen == ["4", "3", "2", "1", "0"]


async def test_events_keep_their_order_however_many_write(database: Database) -> None:
    events = SqlEvents(database)

    async def write(number: int) -> None:
        for _ in range(5):
            await events.append(event(data={"from": number}))

    async def follow() -> list[int]:
        ids: list[int] = []
        while len(ids) < 50:
            page = await events.after(ids[-1] if ids else 0, 100)
            ids += [one.id for one in page]
        return ids

    following = asyncio.create_task(follow())
    await asyncio.gather(*(write(number) for number in range(10)))
    async with asyncio.timeout(20):
        ids = await following
    assert ids == sorted(set(ids)) and len(ids) == 50, "a reader passed an event that showed up later"
    assert await events.last_id() == ids[-1]
    assert await events.purge(NOW + timedelta(days=1)) == 50
    await events.append(event())
    assert await events.last_id() > ids[-1], "a number was used twice"


async def test_the_outbox_holds_what_was_not_taken_yet(database: Database) -> None:
    events, outbox = (
        SqlEvents(database, lambda one: ["a", "b"] if one.type is EventType.READY else []),
        SqlDeliveries(database),
    )
    await events.append(event(), event(EventType.READY))
    due = await outbox.due(NOW, 10)
    assert [(one.webhook, one.event.type, one.attempts) for one in due] == [("a", "ready", 0), ("b", "ready", 0)]
    await outbox.delivered(due[0].id)
    await outbox.postpone(due[1].id, NOW + timedelta(seconds=9), "no")
    assert await outbox.due(NOW, 10) == []
    later = await outbox.due(NOW + timedelta(seconds=9), 10)
    assert [(one.webhook, one.attempts) for one in later] == [("b", 1)]
    await outbox.give_up(later[0].id, "never")
    assert await outbox.due(NOW + timedelta(days=9), 10) == []


async def test_keys_are_found_by_digest_until_they_are_revoked(database: Database) -> None:
    keys = SqlKeys(database)
    scopes = frozenset({Scope.READ, Scope.WRITE})
    key = UserKey(id="k", user_id="ada", name="n", scopes=scopes, digest="d", hint="h", created_at=NOW)
    await keys.add(key)
    assert await keys.by_digest("d") == key and await keys.by_digest("e") is None
    assert await keys.revoke("k", NOW) and not await keys.revoke("k", NOW)
    assert [one.revoked_at for one in await keys.keys()] == [NOW]
