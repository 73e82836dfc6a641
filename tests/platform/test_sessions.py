"""Lifecycle by policy: idle pauses, deadlines, age, crashes, providers that go and come back."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.e2e.server import Server
from tests.platform.fakes import ScriptedProvider
from tests.platform.test_queue import is_running
from tests.platform.world import Served, by_url, scripted, until

from sandlot.client import NotFound, Sandbox, Unavailable
from sandlot.platform.core.model import (
    ProviderSandbox,
    RetentionPolicy,
    SandboxSpec,
    Session,
    SessionLimits,
    SessionStatus,
    TimeoutAction,
)
from sandlot.platform.sessions.reconcile import drift
from sandlot.platform.sessions.retention import RetentionAction, due_action

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def session(status: SessionStatus = SessionStatus.RUNNING, **changes: object) -> Session:
    values: dict[str, object] = {
        "id": "sbx_1",
        "user_id": "ada",
        "session_id": "s",
        "status": status,
        "provider": "p",
        "timeout_s": 100,
        "created_at": NOW,
        "last_used_at": NOW,
        "expires_at": NOW + timedelta(seconds=100),
        "provider_sandbox_id": "i1",
    }
    return Session(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "policy", "act"),
    [
        (9, RetentionPolicy(idle_pause_s=10), None),
        (10, RetentionPolicy(idle_pause_s=10), RetentionAction.PAUSE),
        (99, RetentionPolicy(idle_pause_s=0), None),
        (100, RetentionPolicy(idle_pause_s=0), RetentionAction.PAUSE),
        (100, RetentionPolicy(idle_pause_s=0, on_timeout=TimeoutAction.DELETE), RetentionAction.DELETE),
        (50, RetentionPolicy(idle_pause_s=0, max_age_s=50), RetentionAction.DELETE),
    ],
)
def test_what_is_due_follows_from_the_policy(
    seconds: int, policy: RetentionPolicy, act: RetentionAction | None
) -> None:
    found = due_action(session(), NOW + timedelta(seconds=seconds), policy, SessionLimits())
    assert (found.act if found else None) is act


def test_what_is_paused_only_gets_older() -> None:
    much_later = NOW + timedelta(days=6)
    assert due_action(session(SessionStatus.PAUSED), much_later, RetentionPolicy(), SessionLimits()) is None
    found = due_action(
        session(SessionStatus.PAUSED), much_later + timedelta(days=1), RetentionPolicy(), SessionLimits()
    )
    assert found is not None and found.act is RetentionAction.DELETE


def test_drift_is_a_pure_comparison() -> None:
    here = ProviderSandbox(id="i1", session="sbx_1", is_paused=False)
    assert drift([session()], [here]).strays == []
    assert drift([session()], []).missing == [session()]
    assert drift([], [here]).strays == [here]
    assert drift([session(SessionStatus.PAUSED)], [here]).moved == [(session(SessionStatus.PAUSED), here)]
    starting = session(SessionStatus.STARTING, provider_sandbox_id=None)
    assert drift([starting], [here]).strays == []
    second = ProviderSandbox(id="i2", session="sbx_1", is_paused=False)
    assert drift([session()], [here, second]).strays == [second]


async def has_status(sandbox: Sandbox, status: str) -> bool:
    return (await sandbox.status()).status == status


async def test_an_idle_sandbox_is_paused_and_resumed_on_use(tmp_path: Path, engine: Server) -> None:
    config = by_url(f"http://127.0.0.1:{engine.port}", engine.key, idle_pause_s=2)
    async with Served(tmp_path, config) as served:
        ada = await served.user("ada")
        sandbox = await ada.create(session_id="sleepy")
        await sandbox.run("echo kept > /tmp/state; sleep 1000 >/dev/null 2>&1 & echo $! > /tmp/pid")
        busy = asyncio.create_task(sandbox.run("sleep 4; echo done"))
        await asyncio.sleep(3)
        assert await is_running(sandbox), "it was paused while a command ran"
        assert (await busy).stdout == "done\n"
        await until(lambda: has_status(sandbox, "paused"), what="the pause")
        again = await ada.create(session_id="sleepy")
        assert again.id == sandbox.id and again.info.status == "running"
        assert (await again.run("cat /tmp/state; kill -0 $(cat /tmp/pid) && echo alive")).stdout == "kept\nalive\n"
        await until(lambda: has_status(sandbox, "paused"), what="the next pause")
        assert await sandbox.read_file("/tmp/state") == "kept\n"
        types = []
        async for event in ada.events(after=0, types=["created", "ready", "paused", "resumed"]):
            types.append(event.type)
            if len(types) == 6:
                break
        assert types == ["created", "ready", "paused", "resumed", "paused", "resumed"]
        await sandbox.delete()


async def test_time_runs_out_and_old_age_ends_it(tmp_path: Path, provider: ScriptedProvider) -> None:
    config = scripted(idle_pause_s=0, max_age_s=3)
    async with Served(tmp_path, config, {"scripted": provider}) as served:
        sandbox = await (await served.user("ada")).create(timeout=1)
        await until(lambda: has_status(sandbox, "paused"), what="its timeout")

        async def gone() -> bool:
            try:
                await sandbox.status()
            except NotFound:
                return True
            return False

        await until(gone, what="its end of old age")
        assert not provider.made


async def test_a_start_that_a_crash_interrupted_is_adopted(
    tmp_path: Path, provider: ScriptedProvider, caplog: pytest.LogCaptureFixture
) -> None:
    """The provider made it, and nobody was there any more to hear so."""
    async with Served(tmp_path, scripted(), {"scripted": provider}) as served:
        provider.go.clear()
        sandbox = await (await served.user("ada")).create(session_id="x", wait=0)
        await until(lambda: bool(provider.started), what="the call of the provider")
        await served.stop()
        provider.go.set()
        made = await provider.create(_spec(sandbox.id))
        provider.started.clear()
        with caplog.at_level(logging.WARNING):
            await served.start()
            await until(lambda: is_running(sandbox), what="the adoption")
        assert list(provider.made) == [made]
        assert not provider.started, "it was started a second time"
        assert "adopted" in caplog.text


async def test_a_start_that_never_happened_happens_after_the_restart(
    tmp_path: Path, provider: ScriptedProvider
) -> None:
    async with Served(tmp_path, scripted(), {"scripted": provider}) as served:
        provider.go.clear()
        sandbox = await (await served.user("ada")).create(session_id="x", wait=0)
        await until(lambda: bool(provider.started), what="the call of the provider")
        await served.stop()
        provider.go.set()
        await served.start()
        await until(lambda: is_running(sandbox), what="its start")
        assert len(provider.made) == 1


async def test_orphans_at_the_provider_are_removed_and_told(
    tmp_path: Path, provider: ScriptedProvider, caplog: pytest.LogCaptureFixture
) -> None:
    async with Served(tmp_path, scripted(), {"scripted": provider}) as served:
        sandbox = await (await served.user("ada")).create()
        await served.stop()
        orphan = await provider.create(_spec("sbx_of_nobody"))
        with caplog.at_level(logging.WARNING):
            await served.start()
            await until(lambda: orphan not in provider.made, what="the removal")
        assert f"sandbox {orphan} at provider scripted belongs to no session; removed" in caplog.text
        assert await is_running(sandbox)


async def test_a_delete_during_a_start_leaves_nothing(quick: Served, provider: ScriptedProvider) -> None:
    provider.go.clear()
    sandbox = await (await quick.user("ada")).create(session_id="x", wait=0)
    await until(lambda: bool(provider.started), what="the call of the provider")
    await sandbox.delete()
    provider.go.set()

    async def gone() -> bool:
        return not provider.made and not await quick.client().list()

    await until(gone, what="the end of both")


async def test_what_the_provider_lost_is_told(quick: Served, provider: ScriptedProvider) -> None:
    ada = await quick.user("ada")
    sandbox = await ada.create(session_id="x")
    provider.made.clear()
    with pytest.raises(NotFound, match="ended at its provider"):
        await sandbox.run("echo hi")
    assert (await ada.create(session_id="x")).id != sandbox.id


async def test_a_provider_that_is_down_is_a_503_and_comes_back_by_itself(
    quick: Served, provider: ScriptedProvider
) -> None:
    ada = await quick.user("ada")
    sandbox = await ada.create(session_id="before")
    provider.is_down = True
    for attempt in (lambda: ada.create(session_id="during"), lambda: sandbox.run("echo hi")):
        with pytest.raises(Unavailable, match="down") as refused:
            await attempt()
        assert refused.value.code == 503
        assert refused.value.retry_after_s is not None and refused.value.retry_after_s >= 1
    assert [info.session_id for info in await ada.list()] == ["before"], "what was refused stayed"
    await sandbox.delete()  # noted, and done when it can be
    assert len(provider.made) == 1
    provider.is_down = False
    await until(lambda: not provider.made, what="the deletion")

    async def served() -> bool:
        try:
            return (await ada.create(session_id="after")).info.status == "running"
        except Unavailable:
            return False

    await until(served, what="the recovery")


@pytest.mark.long
async def test_a_real_server_that_dies_is_a_503_until_it_is_back(tmp_path_factory: pytest.TempPathFactory) -> None:
    from tests.e2e.conftest import new_server

    server = new_server(tmp_path_factory, "container")
    server.up()
    config = by_url(f"http://127.0.0.1:{server.port}", server.key)
    try:
        async with Served(tmp_path_factory.mktemp("platform"), config) as served:
            ada = await served.user("ada")
            sandbox = await ada.create(session_id="work")
            await sandbox.write_file("/tmp/x", "kept")
            server.kill_9()
            with pytest.raises(Unavailable) as refused:
                await ada.create(session_id="more")
            assert refused.value.code == 503 and refused.value.retry_after_s
            await asyncio.to_thread(server.up)

            async def back() -> bool:
                try:
                    return await sandbox.read_file("/tmp/x") == "kept"
                except Unavailable:
                    return False

            await until(back, seconds=60, what="the recovery")
            await sandbox.delete()
    finally:
        server.down()


@pytest.mark.long
async def test_the_default_server_dies_in_the_middle_and_finds_everything_again(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    from tests.e2e.conftest import new_server

    from sandlot.client import Client

    server = new_server(tmp_path_factory, "container")
    server.up()
    try:
        async with Client(f"http://127.0.0.1:{server.port}", server.key) as client:
            kept = await client.create(user_id="ada", session_id="kept")
            await kept.write_file("/tmp/x", "here")
            creating = asyncio.create_task(client.create(user_id="ada", session_id="interrupted"))
            await asyncio.sleep(0.1)
            server.kill_9()
            await asyncio.gather(creating, return_exceptions=True)
            await asyncio.to_thread(server.up)
            again = await client.create(user_id="ada", session_id="kept")
            assert again.id == kept.id and await again.read_file("/tmp/x") == "here"
            other = await client.create(user_id="ada", session_id="interrupted")
            assert (await other.run("echo fine")).stdout == "fine\n"

            async def as_many() -> bool:
                return len(server.running()) == len(await client.list(user_id="ada")) == 2

            await until(as_many, what="as many sandboxes as sessions")
            for sandbox in (again, other):
                await sandbox.delete()
            assert server.running() == []
    finally:
        server.down()


def _spec(name: str) -> SandboxSpec:
    return SandboxSpec(session=name, template=None, timeout_s=60, envs={}, metadata={})
