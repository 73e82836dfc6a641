"""What a platform's key with few rights can make happen."""

from __future__ import annotations

from pathlib import Path

from tests.platform.fakes import ScriptedProvider
from tests.platform.test_mcp import call, tools
from tests.platform.world import Served, scripted

from sandlot.platform.core.model import Scope


async def test_a_key_that_may_only_read_makes_no_sandbox_by_reading_in_a_new_one(tmp_path: Path) -> None:
    async with Served(tmp_path, scripted(), {"scripted": ScriptedProvider()}) as served:
        async with tools(served, await served.key("ada", Scope.READ)) as client:
            assert "'write'" in await call(client, "read_file", path="/etc/hostname", session="new")
        ada = await served.user("ada")
        assert await ada.list() == []


async def test_a_key_that_may_only_read_reads_in_a_sandbox_that_is_there(tmp_path: Path) -> None:
    async with Served(tmp_path, scripted(), {"scripted": ScriptedProvider()}) as served:
        async with tools(served, await served.key("ada")) as client:
            assert not (await call(client, "run_command", command="echo hi")).startswith("error")
        async with tools(served, await served.key("ada", Scope.READ)) as client:
            assert "'write'" not in await call(client, "read_file", path="/etc/hostname")
        assert len(await (await served.user("ada")).list()) == 1
