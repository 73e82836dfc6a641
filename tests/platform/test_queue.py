"""The queue: its order as a pure question, and fifty requests at a limit of five."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.e2e.server import Server
from tests.platform.fakes import ScriptedProvider
from tests.platform.world import Served, by_url, scripted, until

from sandlot.client import Busy, NotFound, Sandbox
from sandlot.platform.core.errors import ProviderRefused
from sandlot.platform.core.model import Session, SessionLimits, SessionStatus
from sandlot.platform.sessions.queue import LEASE_MARGIN_S, lease_s, queue_order

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def waiting(user: str, number: int, status: SessionStatus = SessionStatus.QUEUED) -> Session:
    at = NOW + timedelta(seconds=number)
    return Session(
        id=f"sbx_{number}",
        user_id=user,
        session_id=str(number),
        status=status,
        provider="p",
        timeout_s=60,
        created_at=at,
        last_used_at=at,
        queued_at=at,
    )


def order(queued: list[Session], active: list[Session], **limits: int) -> list[tuple[str, int, bool]]:
    positions = queue_order(queued, active, SessionLimits(**limits))
    return [(position.session.id, position.position, position.reason is None) for position in positions]


def test_one_user_is_served_in_the_order_of_arrival() -> None:
    queued = [waiting("a", number) for number in (3, 1, 2)]
    assert order(queued, [], running=2, running_per_user=9) == [
        ("sbx_1", 1, True),
        ("sbx_2", 2, True),
        ("sbx_3", 3, False),
    ]


def test_who_has_less_comes_first() -> None:
    queued = [waiting("greedy", 1), waiting("greedy", 2), waiting("greedy", 3), waiting("modest", 4)]
    assert [name for name, *_ in order(queued, [], running=9)] == ["sbx_1", "sbx_4", "sbx_2", "sbx_3"]
    running = [waiting("greedy", 0, SessionStatus.RUNNING)]
    assert [name for name, *_ in order(queued, running, running=9)] == ["sbx_4", "sbx_1", "sbx_2", "sbx_3"]


def test_a_user_at_the_limit_holds_up_nobody_else() -> None:
    queued = [waiting("full", 1), waiting("other", 2)]
    active = [waiting("full", 0, SessionStatus.RUNNING)]
    assert order(queued, active, running=5, running_per_user=1) == [("sbx_2", 1, True), ("sbx_1", 2, False)]


def test_arrival_is_when_it_was_asked_for_last() -> None:
    resumed = replace(waiting("a", 1), queued_at=NOW + timedelta(seconds=9))
    unknown = replace(waiting("b", 2), queued_at=None)
    assert [name for name, *_ in order([resumed, waiting("c", 5), unknown], [])] == ["sbx_2", "sbx_5", "sbx_1"]
    at_once = [replace(waiting(name, 1), id=name) for name in "cab"]
    assert [name for name, *_ in order(at_once, [])] == ["a", "b", "c"]


def test_a_providers_own_timeout_is_a_minute_later_than_ours() -> None:
    running = waiting("a", 0, SessionStatus.RUNNING)
    assert lease_s(running, NOW) == 60 + 60
    assert lease_s(replace(running, expires_at=NOW + timedelta(seconds=10)), NOW) == 10 + 60
    assert lease_s(replace(running, expires_at=NOW - timedelta(seconds=10)), NOW) == 60


def test_the_reason_says_which_limit_it_is() -> None:
    active = [waiting("a", 0, SessionStatus.RUNNING)]
    full = queue_order([waiting("b", 1)], active, SessionLimits(running=1))[0]
    assert full.reason == "all 1 sandboxes of this server are in use"
    own = queue_order([waiting("a", 1)], active, SessionLimits(running_per_user=1))[0]
    assert own.reason == "this user has 1 of 1 sandboxes running"
    down = queue_order([waiting("a", 1)], [], SessionLimits(), lambda name: f"{name} is down")[0]
    assert down.reason == "p is down"


@pytest.fixture
async def narrow(tmp_path: Path, provider: ScriptedProvider) -> AsyncIterator[Served]:
    config = scripted(running=5, running_per_user=5, sessions_per_user=100)
    async with Served(tmp_path, config, {"scripted": provider}) as served:
        yield served


async def test_fifty_requests_at_a_limit_of_five_are_all_served_in_order(
    narrow: Served, provider: ScriptedProvider
) -> None:
    ada = await narrow.user("ada")
    served: list[str] = []

    async def one(number: int) -> None:
        sandbox = await ada.create(session_id=f"s{number:02d}", wait=60)
        assert sandbox.info.status == "running"
        served.append(sandbox.id)
        assert (await sandbox.run("echo hi")).stdout == "hi\n"
        await sandbox.delete()

    tasks = []
    for number in range(50):
        tasks.append(asyncio.create_task(one(number)))
        await asyncio.sleep(0.01)  # so that there is an order of arrival
    await asyncio.gather(*tasks)
    assert len(set(served)) == 50
    assert provider.most_running <= 5
    by_arrival = {info: number for number, info in enumerate(await arrivals(narrow))}
    assert [by_arrival[session] for session in provider.started] == list(range(50))
    assert not provider.made, "something was left at the provider"


async def arrivals(served: Served) -> list[str]:
    found: list[str] = []
    async for event in served.client().events(after=0, types=["created"]):
        found.append(event.sandbox_id)
        if len(found) == 50:
            break
    return found


async def fill(served: Served, user: str, count: int) -> list[Sandbox]:
    client = await served.user(user)
    return [await client.create(session_id=f"{user}{number}") for number in range(count)]


async def test_position_and_reason_are_visible_and_waiting_can_be_cancelled(narrow: Served) -> None:
    running = await fill(narrow, "ada", 5)
    ada = await narrow.user("ada")
    first = await ada.create(session_id="first", wait=0)
    second = await ada.create(session_id="second", wait=0)
    assert first.info.status == "queued"
    assert first.info.queue is not None and first.info.queue.position == 1
    assert second.info.queue is not None and second.info.queue.position == 2
    assert second.info.queue.reason == "this user has 5 of 5 sandboxes running"
    await first.delete()
    info = await second.status()
    assert info.queue is not None and info.queue.position == 1
    await running[0].delete()
    await until(lambda: is_running(second), what="the next one's start")


async def is_running(sandbox: Sandbox) -> bool:
    return (await sandbox.status()).status == "running"


async def test_what_waits_survives_a_restart(narrow: Served, provider: ScriptedProvider) -> None:
    running = await fill(narrow, "ada", 5)
    ada = await narrow.user("ada")
    queued = await ada.create(session_id="patient", wait=0, envs={"A": "b"})
    await narrow.restart()
    assert (await queued.status()).queue is not None
    await running[0].delete()
    await until(lambda: is_running(queued), what="its start after the restart")
    assert [made.spec.envs["A"] for made in provider.made.values() if made.spec.envs] == ["b"]


async def test_who_waits_too_long_is_told_and_gone(tmp_path: Path, provider: ScriptedProvider) -> None:
    config = scripted(running=1, queue_timeout_s=1)
    async with Served(tmp_path, config, {"scripted": provider}) as served:
        await fill(served, "ada", 1)
        bob = await served.user("bob")
        late = await bob.create(session_id="late", wait=0)

        async def failed() -> bool:
            return (await late.status()).status == "failed"

        await until(failed, what="the end of the wait")
        assert "waited 1 s" in ((await late.status()).problem or "")
        assert len(provider.started) == 1


async def test_a_paused_sandbox_queues_for_its_resumption_too(narrow: Served, provider: ScriptedProvider) -> None:
    sleeper = (await fill(narrow, "sleeper", 1))[0]
    provider_id = next(iter(provider.made))
    await provider.pause(provider_id)
    await narrow.restart()  # it looks at its providers

    async def paused() -> bool:
        return (await sleeper.status()).status == "paused"

    await until(paused, what="the news that it is paused")
    running = await fill(narrow, "ada", 5)
    client = await narrow.user("sleeper")
    again = await client.connect(sleeper.id, wait=0)
    assert again.info.status == "queued" and again.info.queue is not None
    with pytest.raises(Busy, match="position 1"):
        await client.post("run-command", {"sandbox_id": sleeper.id, "command": "echo hi", "wait": 0})
    await running[0].delete()
    await until(lambda: is_running(sleeper), what="its resumption")
    assert (await sleeper.run("echo hi")).stdout == "hi\n"


async def test_a_resumption_asks_the_provider_for_the_whole_time_again(
    narrow: Served, provider: ScriptedProvider
) -> None:
    ada = await narrow.user("ada")
    sandbox = await ada.create(timeout=500)
    (made,) = provider.made.values()
    await provider.pause(made.sandbox.id)
    await narrow.restart()  # it looks at its providers

    async def paused() -> bool:
        return (await sandbox.status()).status == "paused"

    await until(paused, what="the news that it is paused")
    made.leases.clear()
    again = await ada.connect(sandbox.id, wait=60)
    assert again.info.status == "running" and not made.sandbox.is_paused
    assert made.leases == [500 + LEASE_MARGIN_S]


async def test_what_is_deleted_while_it_waits_for_its_resumption_is_ended_at_the_provider(
    tmp_path: Path, provider: ScriptedProvider
) -> None:
    async with Served(tmp_path, scripted(running=1), {"scripted": provider}) as served:
        sleeper = (await fill(served, "sleeper", 1))[0]
        (made,) = provider.made.values()
        await provider.pause(made.sandbox.id)
        await served.restart()

        async def paused() -> bool:
            return (await sleeper.status()).status == "paused"

        await until(paused, what="the news that it is paused")
        await fill(served, "ada", 1)
        again = await (await served.user("sleeper")).connect(sleeper.id, wait=0)
        assert again.info.status == "queued"
        await sleeper.delete()
        await until(lambda: made.sandbox.id not in provider.made, what="its end")
        assert len(await served.client().list()) == 1


async def test_a_start_that_was_refused_can_be_deleted_though_the_provider_is_away(
    narrow: Served, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(spec: object) -> str:
        raise ProviderRefused("no such template")

    monkeypatch.setattr(provider, "create", refuse)
    sandbox = await (await narrow.user("ada")).create(wait=0)

    async def failed() -> bool:
        return (await sandbox.status()).status == "failed"

    await until(failed, what="its failure")
    provider.is_down = True
    await sandbox.delete()
    with pytest.raises(NotFound):
        await sandbox.status()


async def test_a_start_that_fails_as_nobody_expected_is_in_the_log_and_one_cut_short_is_not(
    narrow: Served, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ada = await narrow.user("ada")
    provider.go.clear()
    await ada.create(wait=0)
    await until(lambda: bool(provider.started), what="the call of the provider")
    with caplog.at_level(logging.ERROR):
        await narrow.stop()
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
        provider.go.set()
        await narrow.start()

        async def stumble(spec: object) -> str:
            raise RuntimeError("nobody thought of this")

        monkeypatch.setattr(provider, "create", stumble)
        await (await narrow.user("bob")).create(wait=0)
        await until(lambda: "failed unexpectedly" in caplog.text, what="the line in the log")
    assert "nobody thought of this" in caplog.text


async def test_too_many_sessions_of_one_user_are_refused(tmp_path: Path, provider: ScriptedProvider) -> None:
    async with Served(tmp_path, scripted(sessions_per_user=2), {"scripted": provider}) as served:
        await fill(served, "ada", 2)
        ada = await served.user("ada")
        with pytest.raises(Busy, match="delete one first"):
            await ada.create()
        assert (await (await served.user("bob")).create()).info.status == "running"


async def test_real_sandboxes_wait_for_their_turn(tmp_path: Path, engine: Server) -> None:
    config = by_url(f"http://127.0.0.1:{engine.port}", engine.key, running=2, running_per_user=2)
    async with Served(tmp_path, config) as served:
        ada = await served.user("ada")

        async def one(number: int) -> str:
            sandbox = await ada.create(session_id=str(number), wait=60)
            said = (await sandbox.run(f"echo {number}")).stdout
            await sandbox.delete()
            return said

        assert await asyncio.gather(*(one(number) for number in range(6))) == [f"{number}\n" for number in range(6)]
