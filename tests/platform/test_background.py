"""Background commands that somebody registered: they keep their sandbox awake, and outlive a restart of the platform."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.server import Server
from tests.platform.fakes import ScriptedProvider
from tests.platform.test_queue import is_running
from tests.platform.test_sessions import has_status
from tests.platform.world import Served, by_url, scripted, until

from sandlot.client import Client, ClientError, Event

COMMANDS = ["command.started", "command.output", "command.ended"]


async def told(client: Client, last: str = "command.ended", **options: Any) -> list[Event]:
    """The events so far, up to the first of this type."""
    found = []
    stream = client.events(after=0, types=[*COMMANDS, "deleted"], **options)
    async with asyncio.timeout(30):
        async for event in stream:
            found.append(event)
            if event.type == last:
                break
    await stream.aclose()  # type: ignore[attr-defined]
    return found


async def count(client: Client, type: str, sandbox_id: str) -> int:
    """How many there are in the log, by a mark that is logged after them."""
    found = 0
    stream = client.events(after=0, types=[type, "file.changed"], sandbox_id=sandbox_id)
    async with asyncio.timeout(30):
        async for event in stream:
            if event.data.get("path") == "/tmp/mark":
                break
            found += event.type == type
    await stream.aclose()  # type: ignore[attr-defined]
    return found


async def test_a_restarted_platform_attaches_again_and_tells_the_end_once(
    tmp_path: Path, engine: Server, caplog: pytest.LogCaptureFixture
) -> None:
    config = by_url(f"http://127.0.0.1:{engine.port}", engine.key)
    async with Served(tmp_path, config) as served:
        ada = await served.user("ada")
        sandbox = await ada.create(session_id="long")
        command = "echo one; until test -e /tmp/go; do sleep 0.1; done; echo two; exit 7"
        started = await sandbox.run(command, background=True, keep_awake=True)
        before = await told(ada, "command.output")
        assert [(event.type, event.data.get("text")) for event in before] == [
            ("command.started", None),
            ("command.output", "one\n"),
        ]
        assert before[0].data["pid"] == started.pid and before[0].data["keep_awake"] is True
        caplog.set_level(logging.INFO)
        await served.restart()
        await until(lambda: "attached to command" in caplog.text, what="the first attachment")
        await served.restart()
        await until(lambda: caplog.text.count(f"attached to command {started.command_id}") == 2, what="the attachments")
        await sandbox.upload_file("/tmp/go", b"")
        events = await told(ada)
        assert [event.data.get("text") for event in events if event.type == "command.output"] == ["one\n", "two\n"]
        ended = events[-1].data
        assert (ended["command_id"], ended["exit_code"], ended["pid"]) == (started.command_id, 7, started.pid)
        await served.restart()
        await asyncio.sleep(3)  # it looks at its commands now
        await sandbox.write_file("/tmp/mark", "")
        assert await count(ada, "command.ended", sandbox.id) == 1
        await sandbox.delete()


async def test_its_sandbox_is_not_paused_for_idleness_while_it_runs(tmp_path: Path, engine: Server) -> None:
    config = by_url(f"http://127.0.0.1:{engine.port}", engine.key, idle_pause_s=1)
    async with Served(tmp_path, config) as served:
        ada = await served.user("ada")
        busy, idle = await ada.create(session_id="busy"), await ada.create(session_id="idle")
        await busy.run("sleep 6", background=True, keep_awake=True)
        await idle.run("sleep 1000", background=True)
        await until(lambda: has_status(idle, "paused"), what="the pause of the one that nobody registered")
        await served.restart()
        await asyncio.sleep(2.5)
        assert await is_running(busy), "it was paused while a registered command ran"
        await until(lambda: has_status(busy, "paused"), what="the pause after the end")
        assert [event.data["exit_code"] for event in (await told(ada, sandbox_id=busy.id))[1:]] == [0]
        await busy.delete()
        await idle.delete()


async def test_one_that_ended_unseen_is_told_as_such(tmp_path: Path, provider: ScriptedProvider) -> None:
    async with Served(tmp_path, scripted(), {"scripted": provider}) as served:
        ada = await served.user("ada")
        sandbox = await ada.create()
        await sandbox.run("sleep 0.3", background=True, keep_awake=True)
        await served.stop()
        await asyncio.sleep(0.5)
        await served.start()
        ended = (await told(ada))[-1].data
        assert "exit_code" not in ended and "not known" in ended["reason"]


async def test_another_process_with_its_number_is_not_taken_for_it(tmp_path: Path, provider: ScriptedProvider) -> None:
    async with Served(tmp_path, scripted(), {"scripted": provider}) as served:
        ada = await served.user("ada")
        started = await (await ada.create()).run("sleep 100", background=True, keep_awake=True)
        await served.stop()
        (made,) = provider.made.values()
        assert started.pid is not None
        made.processes[started.pid].command = "sleep 200"
        await served.start()
        assert "not known" in (await told(ada))[-1].data["reason"]


async def test_a_sandbox_that_is_deleted_ends_its_commands(tmp_path: Path, provider: ScriptedProvider) -> None:
    async with Served(tmp_path, scripted(), {"scripted": provider}) as served:
        ada = await served.user("ada")
        sandbox = await ada.create()
        await sandbox.run("sleep 100", background=True, keep_awake=True)
        await sandbox.delete()
        assert (await told(ada))[-1].data["reason"] == "its sandbox has ended"


async def test_a_provider_that_is_away_for_a_while_does_not_end_it(tmp_path: Path, provider: ScriptedProvider) -> None:
    async with Served(tmp_path, scripted(), {"scripted": provider}) as served:
        ada = await served.user("ada")
        sandbox = await ada.create()
        await sandbox.run("sleep 100; exit 9", background=True, keep_awake=True)
        await served.stop()
        provider.is_down = True
        await served.start()
        await asyncio.sleep(0.5)
        provider.is_down = False
        (made,) = provider.made.values()
        (process,) = made.processes.values()
        await until(lambda: len(process.followers) == 1, what="the attachment")
        process.killed.set()
        assert (await told(ada))[-1].data["exit_code"] == 137


async def test_only_background_commands_can_be_registered(quick: Served) -> None:
    sandbox = await quick.client().create(user_id="ada")
    with pytest.raises(ClientError, match="keep_awake is for background commands") as refused:
        await sandbox.run("echo hi", keep_awake=True)
    assert refused.value.code == 400
