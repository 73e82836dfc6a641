"""How callers of the platform get to the tools inside their sandboxes."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import pytest
from tests.platform.fakes import ScriptedCommands, ScriptedProvider
from tests.platform.world import Served, scripted, until

from sandlot.client import ClientError, NotFound, Sandbox
from sandlot.platform.core.model import Scope
from sandlot.platform.core.ports import OnOutput, RunningCommand


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that scripted sandboxes were told to run."""
    commands: list[str] = []
    start = ScriptedCommands.start

    async def listening(
        self: ScriptedCommands, command: str, *, on_output: OnOutput, **options: object
    ) -> RunningCommand:
        commands.append(command)
        return await start(self, command, on_output=on_output, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(ScriptedCommands, "start", listening)
    return commands


async def test_each_session_has_a_token_of_its_own_that_stays(quick: Served, heard: list[str]) -> None:
    ada = await quick.user("ada")
    sandbox, other = await ada.create(session_id="one"), await ada.create(session_id="two")
    tools, again, others = await sandbox.tools(), await sandbox.tools(), await other.tools()
    assert tools.url.startswith("http://6060-") and tools.url.endswith("/mcp")
    assert tools == again and tools.token != others.token and tools.token not in repr(tools)
    await quick.restart()
    assert (await (await ada.connect(sandbox.id)).tools()).token == tools.token
    assert any(hashlib.sha256(tools.token.encode()).hexdigest() in command for command in heard)
    assert not any(tools.token in command for command in heard), "the sandbox learns the hash only"


async def test_nobody_gets_to_the_tools_of_somebody_else(quick: Served, heard: list[str]) -> None:
    sandbox = await (await quick.user("ada")).create(session_id="mine")
    with pytest.raises(NotFound):
        await (await quick.user("bob")).post("tools", {"sandbox_id": sandbox.id})
    async with quick.http(await quick.key("ada", Scope.READ)) as http:
        assert (await http.post("/sandboxes/tools", json={"sandbox_id": sandbox.id})).status_code == 403
    assert heard == []


async def test_a_sandbox_without_tools_is_told_as_such(
    quick: Served, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(self: ScriptedCommands, command: str, *, on_output: OnOutput, **options: object) -> RunningCommand:
        return await plain(self, "exit 127", on_output=on_output, **options)  # type: ignore[arg-type]

    plain = ScriptedCommands.start
    monkeypatch.setattr(ScriptedCommands, "start", start)
    sandbox = await (await quick.user("ada")).create(template_id="bare")
    with pytest.raises(ClientError, match="template 'bare' has none") as refused:
        await sandbox.tools()
    assert refused.value.code == 409


async def test_a_sandbox_whose_tools_are_used_is_not_idle_even_after_a_restart(
    tmp_path: Path, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, asked = {"used": "echo 0.0", "unused": "echo 5000.0", "bare": "exit 127"}, Counter[str]()

    async def start(self: ScriptedCommands, command: str, *, on_output: OnOutput, **options: object) -> RunningCommand:
        name = self.made.spec.metadata["name"]
        asked[name] += command.endswith(" idle")
        line = said[name] if command.endswith(" idle") else "exit 0"
        return await plain(self, line, on_output=on_output, **options)  # type: ignore[arg-type]

    plain = ScriptedCommands.start
    monkeypatch.setattr(ScriptedCommands, "start", start)
    async with Served(tmp_path, scripted(idle_pause_s=1), {"scripted": provider}) as served:
        ada = await served.user("ada")
        used, unused, bare = [await ada.create(session_id=name, metadata={"name": name}) for name in said]
        await used.tools()
        await served.restart()
        for sandbox in (unused, bare):
            await until(lambda one=sandbox: is_paused(one), 60, what="the pause of one that nobody uses")
        before = asked["used"]
        await until(lambda: asked["used"] >= before + 2, 60, what="the next looks at the one that is used")
        assert (await used.status()).status == "running", "its tools say that they are in use"
        said["used"] = "echo a lie"  # what comes from inside is data, and may be anything
        await until(lambda: is_paused(used), 60, what="the pause of the one that says nothing useful")


async def is_paused(sandbox: Sandbox) -> bool:
    return (await sandbox.status()).status == "paused"
