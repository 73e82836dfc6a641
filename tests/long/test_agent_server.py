"""The template `agent-server`: a conversation over WebSockets that outlives connections and pauses, with a scripted model inside."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from e2b import Sandbox
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server, clean_environment
from tests.models.inside import ModelInside
from tests.models.script import parse

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
EXAMPLES = Path(__file__).parents[2] / "examples" / "agent-server"
PLAN = parse(
    {
        "scenes": [
            {
                "when": "make",
                "turns": [
                    {"say": "I make it.", "calls": [{"tool": "Bash", "input": {"command": "echo hello > made.txt"}}]},
                    {"say": "It is made, slowly.", "delay_s": 2},
                ],
            },
            {"when": "long", "turns": [{"say": "Never heard.", "delay_s": 60}]},
            {"when": "again", "turns": [{"say": "Here I am again."}]},
        ]
    }
)
Frames = list[dict[str, Any]]


@pytest.fixture(scope="module", params=["gvisor", "container"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with in_pristine(tmp_path_factory, request.param) as server:
        server.cli("template", "build", "--stock", "agent-server", timeout=800)
        yield server


@pytest.fixture
def sandbox(server: Server) -> Iterator[Sandbox]:
    made = server.create(
        "agent-server",
        timeout=600,
        allow_internet_access=False,
        lifecycle={"on_timeout": "pause", "auto_resume": True},
    )
    yield made
    made.kill()


def environment(model: ModelInside) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": "sk-scripted",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


class Door:
    """The agent server's port, through the gateway."""

    def __init__(self, server: Server, sandbox: Sandbox) -> None:
        self.url = f"http://127.0.0.1:{server.port}"
        self.token = sandbox.commands.run("agent-server token").stdout.strip()
        self._host = {"Host": f"3000-{sandbox.sandbox_id}.localhost:{server.port}"}

    @asynccontextmanager
    async def open(
        self, after: int | None = None, token: str | None = None
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        headers = {**self._host, "Authorization": f"Bearer {token or self.token}"}
        path = "/ws" if after is None else f"/ws?after={after}"
        async with aiohttp.ClientSession() as http, http.ws_connect(self.url + path, headers=headers) as socket:
            assert (await socket.receive_json(timeout=60))["type"] == "connected"
            yield socket

    async def configure(self, **settings: Any) -> None:
        headers = {**self._host, "Authorization": f"Bearer {self.token}"}
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{self.url}/config", json=settings, headers=headers) as answer,
        ):
            assert answer.status == 200, await answer.text()


def prompt(text: str, **more: str) -> dict[str, Any]:
    return {"type": "user_message", "data": {"message": {"role": "user", "content": text}, **more}}


async def frames(socket: aiohttp.ClientWebSocketResponse, until: str = "idle", most: int | None = None) -> Frames:
    """Numbered frames, until the state is reached after it was another, or so many."""
    found: Frames = []
    while True:
        frame = await socket.receive_json(timeout=120)
        assert frame["type"] != "error", frame
        if "seq" in frame:
            found.append(frame)
        if len(found) == most or (frame["type"] == "state" and frame["state"] == until):
            return found


async def answer(socket: aiohttp.ClientWebSocketResponse, kind: str) -> dict[str, Any]:
    """The next frame of this type; others go on meanwhile."""
    while True:
        frame: dict[str, Any] = await socket.receive_json(timeout=20)
        if frame["type"] == kind:
            return frame


def numbers(found: Frames) -> list[int]:
    return [frame["seq"] for frame in found]


async def test_a_stream_goes_on_after_a_disconnect_without_loss_or_repeat_for_ten_readers(
    server: Server, sandbox: Sandbox
) -> None:
    model, door = ModelInside(sandbox).start(PLAN), Door(server, sandbox)
    await door.configure(env=environment(model))

    async def read_all() -> Frames:
        async with door.open(after=0) as socket:
            return await frames(socket)

    readers = [asyncio.create_task(read_all()) for _ in range(10)]
    async with door.open(after=0) as socket:
        await socket.send_json(prompt("make it", uuid="6f1c0c3e-0b6e-4f43-9d0e-3b7c2a1d4e5f"))
        seen = await frames(socket, most=6)
    while seen[-1].get("state") != "idle":  # leaves every few frames, in the middle of the stream too
        async with door.open(after=seen[-1]["seq"]) as socket:
            await socket.send_json(prompt("make it", uuid="6f1c0c3e-0b6e-4f43-9d0e-3b7c2a1d4e5f"))
            seen += await frames(socket, most=7)
    assert numbers(seen) == list(range(1, len(seen) + 1))
    assert [await reader for reader in readers] == [seen] * 10
    assert sum(frame["type"] == "user_message" for frame in seen) == 1, "the same message is taken once"
    assert "stream_event" in {frame["data"]["type"] for frame in seen if frame["type"] == "sdk_message"}
    assert sandbox.files.read("/home/user/workspace/made.txt") == "hello\n"
    assert model.state()["problems"] == []


async def test_a_conversation_goes_on_after_a_pause_that_a_connection_ends(server: Server, sandbox: Sandbox) -> None:
    model, door = ModelInside(sandbox).start(PLAN), Door(server, sandbox)
    await door.configure(env=environment(model))
    async with door.open(after=0) as socket:
        await socket.send_json(prompt("make it"))
        first = await frames(socket)
    sandbox.pause()
    async with door.open(after=first[-1]["seq"]) as socket:
        await socket.send_json(prompt("again"))
        second = await frames(socket)
    assert numbers(first + second) == list(range(1, len(first + second) + 1))
    result = [frame["data"] for frame in second if frame["type"] == "sdk_message" and frame["data"]["type"] == "result"]
    assert result[-1]["result"] == "Here I am again."
    assert len({frame["session"] for frame in first + second if frame.get("session")}) == 1
    assert model.state()["problems"] == []


async def test_one_writes_and_is_asked_and_can_interrupt(server: Server, sandbox: Sandbox) -> None:
    model, door = ModelInside(sandbox).start(PLAN), Door(server, sandbox)
    with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
        async with door.open(token="sla_wrong"):
            pass
    await door.configure(env=environment(model), permissionMode="default")
    async with door.open(after=0) as writer, door.open(after=0) as reader:
        await writer.send_json(prompt("make it"))
        asked = (await frames(reader, until="waiting"))[-2]
        assert (asked["type"], asked["tool"]) == ("approval_request", "Bash")
        await reader.send_json({"type": "approve", "requestId": asked["requestId"], "behavior": "allow"})
        assert "another client writes" in (await answer(reader, "error"))["message"]
        await reader.send_json({"type": "take"})
        assert (await answer(reader, "writer"))["you"]
        await reader.send_json({"type": "approve", "requestId": asked["requestId"], "behavior": "allow"})
        await frames(reader)
        assert sandbox.files.read("/home/user/workspace/made.txt") == "hello\n"
        await reader.send_json(prompt("long"))
        await frames(reader, until="running")
        await asyncio.sleep(2)
        await reader.send_json({"type": "interrupt"})
        assert (await frames(reader))[-1]["state"] == "idle"


def test_a_template_of_ones_own_is_built_with_the_typescript_builder(server: Server, tmp_path: Path) -> None:
    for file in (EXAMPLES / "own-template").iterdir():
        (tmp_path / file.name).write_text(file.read_text())
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "package.json").write_text("{}")  # else npm installs into the directory above
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "e2b", "tsx"], cwd=tools, check=True, timeout=300)
    (tools / "node_modules").rename(tmp_path / "node_modules")
    names = {f"E2B_{name.upper()}": str(value) for name, value in server.sdk.items()}
    done = subprocess.run(
        ["npx", "tsx", "build.ts"],
        env={**clean_environment(), **names, "HOME": os.environ["HOME"]},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    sandbox = server.create("my-agent-server", timeout=300, allow_internet_access=False)
    try:
        model = ModelInside(sandbox).start(PLAN)

        async def talk() -> Frames:
            host = {"Host": f"3000-{sandbox.sandbox_id}.localhost:{server.port}"}
            url = f"http://127.0.0.1:{server.port}/"
            async with aiohttp.ClientSession() as http, http.ws_connect(url, headers=host) as socket:
                await socket.send_json({"prompt": "again", "env": environment(model)})
                found: Frames = []
                while not found or found[-1]["type"] not in ("result", "error"):
                    found.append(await socket.receive_json(timeout=120))
                return found

        assert asyncio.run(talk())[-1]["result"] == "Here I am again."
    finally:
        sandbox.kill()


@pytest.mark.parametrize("language", ["python", "typescript"])
def test_the_examples_talk_pause_and_go_on(server: Server, tmp_path: Path, language: str) -> None:
    command = [sys.executable, str(EXAMPLES / "client.py")]
    if language == "typescript":
        packages = ["e2b", "ws", "tsx"]
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", *packages], cwd=tmp_path, check=True, timeout=300)
        (tmp_path / "client.ts").write_text((EXAMPLES / "client.ts").read_text())
        (tmp_path / "package.json").write_text(
            json.dumps({**json.loads((tmp_path / "package.json").read_text()), "type": "module"})
        )
        command = ["npx", "tsx", str(tmp_path / "client.ts")]
    names = {f"E2B_{name.upper()}": str(value) for name, value in server.sdk.items()}
    # The model is in the sandbox: so a first one is made, told where it is, and known to the example.
    made = server.create("agent-server", timeout=600)
    try:
        model, door = ModelInside(made).start(PLAN), Door(server, made)
        asyncio.run(door.configure(env=environment(model)))
        for words, wanted in (("make it", "It is made, slowly."), ("again", "Here I am again.")):
            done = subprocess.run(
                [*command, "--sandbox", made.sandbox_id, words],
                env={**clean_environment(), **names, "AGENT_SCHEME": "http", "HOME": os.environ["HOME"]},
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert wanted in done.stdout and "is paused" in done.stdout, done.stdout + done.stderr
    finally:
        made.kill()
