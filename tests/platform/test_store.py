"""What the platform's store does, on SQLite and on a real PostgreSQL; and what every provider does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text
from tests.databases import KINDS, nothing_in

from sandlot.platform.core.errors import Conflict
from sandlot.platform.core.events import Event, EventFilter, Subject
from sandlot.platform.core.model import (
    BackgroundCommand,
    CommandStatus,
    Scope,
    Session,
    SessionStatus,
    UserKey,
    WebhookBacklog,
)
from sandlot.platform.core.triggers import RuleRecord, TriggerRule, TriggerWhen
from sandlot.platform.store import (
    Database,
    SqlCommands,
    SqlDeliveries,
    SqlEvents,
    SqlKeys,
    SqlSessions,
    SqlTriggerRules,
)
from sandlot.platform.store import events as store_events
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


def event(type: str = "created", **changes: object) -> Event:
    values: dict[str, object] = {
        "at": NOW,
        "user_id": "ada",
        "subject": Subject("sandbox", "sbx_s"),
        "session_id": "s",
        "data": {"n": 1},
    }
    return Event(type=type, **{**values, **changes})  # type: ignore[arg-type]


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
    running = await store.swap(found, replace(found, status=SessionStatus.RUNNING), event("ready"))
    assert running.revision == 1
    with pytest.raises(Conflict):
        await store.swap(found, replace(found, status=SessionStatus.FAILED), event("error"))
    assert [one.type for one in await SqlEvents(database).after(0, 10)] == ["created", "ready"]
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


async def test_one_user_cannot_fill_the_event_log(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_events, "MOST_PER_USER", 3)
    events = SqlEvents(database)
    for user in ["ada"] * 5 + ["bob"] * 2:
        await events.append(event(user_id=user))
    before = await events.after(0, 100)
    assert await events.purge(NOW - timedelta(days=1)) == 2
    assert [one.id for one in await events.after(0, 100)] == [one.id for one in before[2:]]


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
    assert not await events.forgot(0, None) and not await events.forgot(ids[10], "ada")
    assert await events.purge(NOW + timedelta(days=1)) == 50
    assert await events.forgot(ids[10], None), "a reader at this place has missed events"
    await events.append(event())
    assert await events.last_id() > ids[-1], "a number was used twice"
    assert await events.forgot(ids[10], "ada") and not await events.forgot(ids[-1], "ada")


async def test_events_are_about_any_subject_and_chosen_by_it(database: Database) -> None:
    events = SqlEvents(database)
    task = Subject("task", "task_1")
    await events.append(event(), event("task.moved", subject=task, session_id=None), event("taskless", subject=task))
    (moved,) = await events.after(0, 10, EventFilter(types=frozenset({"task.*"})))
    assert (moved.subject, moved.session_id, moved.type) == (task, None, "task.moved")
    cases = [
        (EventFilter(subject_kind="task"), 2),
        (EventFilter(subject_kind="sandbox", subject_id="sbx_s"), 1),
        (EventFilter(subject_kind="sandbox", subject_id="task_1"), 0),
        (EventFilter(types=frozenset({"created", "task.*"})), 2),
        (EventFilter(types=frozenset({"*"})), 3),
        (EventFilter(session_id="s"), 2),
    ]
    everything = await events.after(0, 10)
    for chosen, count in cases:
        found = await events.after(0, 10, chosen)
        assert len(found) == count, chosen
        assert found == [one for one in everything if chosen.matches(one)], "the tail and the table differ"


async def test_events_of_before_there_were_subjects_are_kept_with_their_deliveries(
    database: Database,
) -> None:
    """The tables as the first revision made them, with a row in each, brought to this version."""
    async with database.write("start afresh") as connection:
        for table in (*reversed(metadata.sorted_tables), VERSION_TABLE):
            await connection.execute(text(f"DROP TABLE {table}"))
        await connection.run_sync(migrate_to, database, "p0001")
        await connection.execute(
            text(
                "INSERT INTO platform_events (type, at, user_id, sandbox_id, session_id, data) "
                "VALUES ('ready', '2030-05-01 12:30:15.123456', 'ada', 'sbx_old', 'old', '{}')"
            )
        )
        await connection.execute(
            text(
                "INSERT INTO platform_deliveries (webhook, event_id, attempts, next_at) "
                "VALUES ('ci', 1, 0, '2030-05-01 12:30:15.123456')"
            )
        )
    await database.migrate()
    (old,) = await SqlEvents(database).after(0, 10)
    assert (old.id, old.subject, old.session_id) == (1, Subject("sandbox", "sbx_old"), "old")
    (due,) = await SqlDeliveries(database).due(NOW + timedelta(days=1), 10)
    assert due.event == old
    await SqlEvents(database).append(event())
    assert await SqlEvents(database).last_id() == 2


def migrate_to(connection: Connection, database: Database, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", database.tables.migrations)
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


async def test_the_outbox_holds_what_was_not_taken_yet(database: Database) -> None:
    events, outbox = (
        SqlEvents(database, lambda one: ["a", "b"] if one.type == "ready" else []),
        SqlDeliveries(database),
    )
    await events.append(event(), event("ready"))
    due = await outbox.due(NOW, 10)
    assert [(one.webhook, one.event.type, one.attempts) for one in due] == [("a", "ready", 0), ("b", "ready", 0)]
    await outbox.delivered(due[0].id)
    await outbox.postpone(due[1].id, NOW + timedelta(seconds=9), "no")
    assert await outbox.due(NOW, 10) == []
    later = await outbox.due(NOW + timedelta(seconds=9), 10)
    assert [(one.webhook, one.attempts) for one in later] == [("b", 1)]
    assert await outbox.backlog() == {"b": WebhookBacklog(waiting=1, problem="no")}
    await outbox.give_up(later[0].id, "never")
    assert await outbox.backlog() == {"b": WebhookBacklog(given_up=1, problem="never")}
    assert await outbox.due(NOW + timedelta(days=9), 10) == []


async def test_background_commands_end_once_with_their_event(database: Database) -> None:
    """The same compare-and-set as for sessions, for another kind of record."""
    store = SqlCommands(database)
    command = BackgroundCommand(
        id="cmd_1",
        user_id="ada",
        sandbox_id="sbx_s",
        session_id="s",
        pid=7,
        command="make",
        status=CommandStatus.RUNNING,
        started_at=NOW,
    )
    await store.add(command, event("command.started"))
    assert await store.running() == await store.running("sbx_s") == [command]
    assert await store.running("sbx_other") == []
    ended = replace(command, status=CommandStatus.ENDED, ended_at=NOW, exit_code=-1)
    ends = (store.swap(command, ended, event("command.ended")) for _ in range(5))
    results = await asyncio.gather(*ends, return_exceptions=True)
    assert sum(isinstance(result, Conflict) for result in results) == 4
    assert [one.type for one in await SqlEvents(database).after(0, 10)] == ["command.started", "command.ended"]
    kept = await store.get("cmd_1")
    assert kept == replace(ended, revision=1) and await store.running() == []
    assert await store.purge(NOW) == 0 and await store.purge(NOW + timedelta(seconds=1)) == 1


async def test_keys_are_found_by_digest_until_they_are_revoked(database: Database) -> None:
    keys = SqlKeys(database)
    scopes = frozenset({Scope.READ, Scope.WRITE})
    key = UserKey(id="k", user_id="ada", name="n", scopes=scopes, digest="d", hint="h", created_at=NOW)
    await keys.add(key)
    assert await keys.by_digest("d") == key and await keys.by_digest("e") is None
    assert await keys.revoke("k", NOW) and not await keys.revoke("k", NOW)
    assert [one.revoked_at for one in await keys.keys()] == [NOW]


async def test_rules_and_their_pauses_are_kept_with_their_events(database: Database) -> None:
    store = SqlTriggerRules(database)
    rule = TriggerRule(name="b", when=TriggerWhen.CRON, schedule="@daily", repositories=("app",), checks=("ü",))
    await store.put(RuleRecord(name="b", rule=rule, created_at=NOW))
    await store.put(RuleRecord(name="a", paused_at=NOW, paused_reason="enough"), event("trigger.paused"))
    assert [(each.name, each.rule) for each in await store.all()] == [("a", None), ("b", rule)]
    await store.put(RuleRecord(name="a", resumed_at=NOW), event("trigger.resumed"))
    assert (await store.all())[0] == RuleRecord(name="a", resumed_at=NOW)
    assert await store.remove("b", event("trigger.deleted")) and not await store.remove("b", event("trigger.deleted"))
    found = await SqlEvents(database).after(0, 10)
    assert [each.type for each in found] == ["trigger.paused", "trigger.resumed", "trigger.deleted"]
