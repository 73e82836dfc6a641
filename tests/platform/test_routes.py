"""Every route over real HTTP with real sandboxes: beside the engine, and pointed at a server elsewhere by URL and key."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.e2e.server import Server
from tests.platform.world import ADMIN, Served, by_url, until

from sandlot.client import Client, NotFound


class EnvdAddress:
    """Where a platform is reached, and a key that may do everything there."""

    def __init__(self, url: str, admin: str) -> None:
        self.url, self.admin = url, admin

    def http(self, key: str | None = None) -> httpx.AsyncClient:
        headers = {"X-API-KEY": key or self.admin}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=60, trust_env=False)


@pytest.fixture(params=["beside the engine", "by url and key"])
async def door(request: pytest.FixtureRequest, engine: Server, tmp_path: Path) -> AsyncIterator[EnvdAddress]:
    url = f"http://127.0.0.1:{engine.port}"
    if request.param == "beside the engine":
        yield EnvdAddress(url, engine.key)
        return
    async with Served(tmp_path, by_url(url, engine.key)) as served:
        yield EnvdAddress(served.url, ADMIN)


@pytest.fixture
async def http(door: EnvdAddress) -> AsyncIterator[httpx.AsyncClient]:
    async with door.http() as client:
        yield client


@pytest.fixture
async def sandbox(http: httpx.AsyncClient) -> AsyncIterator[str]:
    answer = await http.post("/sandboxes/create", json={"user_id": "ada", "envs": {"COLOUR": "blue"}})
    assert answer.status_code == 201, answer.text
    assert answer.json()["status"] == "running"
    name = answer.json()["sandbox_id"]
    yield name
    await http.post("/sandboxes/delete", json={"sandbox_id": name})


async def post(http: httpx.AsyncClient, route: str, /, **body: Any) -> dict[str, Any]:
    answer = await http.post(f"/sandboxes/{route}", json=body)
    assert answer.status_code < 300, answer.text
    return dict(answer.json())


async def test_commands_files_ports_and_time_of_a_sandbox(
    http: httpx.AsyncClient, sandbox: str, engine: Server
) -> None:
    ran = await post(http, "run-command", sandbox_id=sandbox, command="echo $COLOUR; echo oh >&2; exit 4")
    assert ran["stdout"] == "blue\n"
    assert ran["stderr"] == "oh\n"
    assert ran["exit_code"] == 4
    assert sorted(ran["output"].splitlines()) == ["blue", "oh"]

    placed = await post(
        http, "run-command", sandbox_id=sandbox, command='echo "$X in $PWD"', cwd="/tmp", envs={"X": "1"}
    )
    assert placed["stdout"] == "1 in /tmp\n"

    late = await post(http, "run-command", sandbox_id=sandbox, command="echo first; sleep 60", timeout=0.5)
    assert late["timed_out"] and late["exit_code"] == 124 and late["stdout"] == "first\n"

    written = await post(http, "write-file", sandbox_id=sandbox, path="/tmp/a/b.txt", content="grüße\n")
    assert written["size"] == len("grüße\n".encode())
    assert (await post(http, "read-file", sandbox_id=sandbox, path="/tmp/a/b.txt"))["content"] == "grüße\n"

    exposed = await post(http, "expose-port", sandbox_id=sandbox, port=8080)
    await post(
        http, "run-command", sandbox_id=sandbox, command="python3 -m http.server 8080 -d /tmp/a", background=True
    )
    host = httpx.URL(exposed["url"]).netloc.decode()
    async with httpx.AsyncClient(trust_env=False) as outside:

        async def served() -> bool:
            answer = await outside.get(f"http://127.0.0.1:{engine.port}/b.txt", headers={"Host": host})
            return answer.text == "grüße\n"

        await until(served, what=f"an answer at {exposed['url']}")

    assert (await post(http, "timeout", sandbox_id=sandbox, timeout=1234))["timeout"] == 1234


async def test_files_of_any_size_and_kind(http: httpx.AsyncClient, sandbox: str) -> None:
    content = bytes(range(256)) * 8000
    form = {"sandbox_id": sandbox, "path": "/tmp/form.bin"}
    answer = await http.post("/sandboxes/upload-file", data=form, files={"file": content})
    assert answer.json() == {"path": "/tmp/form.bin", "size": len(content)}, answer.text
    answer = await http.post("/sandboxes/upload-file", params={**form, "path": "/tmp/raw.bin"}, content=content)
    assert answer.json()["size"] == len(content)
    for path in ("/tmp/form.bin", "/tmp/raw.bin"):
        answer = await http.post("/sandboxes/download-file", json={"sandbox_id": sandbox, "path": path})
        assert answer.content == content
    answer = await http.post("/sandboxes/read-file", json={"sandbox_id": sandbox, "path": "/tmp/raw.bin"})
    assert answer.status_code == 400 and "base64" in answer.json()["message"]
    encoded = await post(http, "read-file", sandbox_id=sandbox, path="/tmp/raw.bin", encoding="base64")
    assert base64.b64decode(encoded["content"]) == content
    for route in ("read-file", "download-file"):
        answer = await http.post(f"/sandboxes/{route}", json={"sandbox_id": sandbox, "path": "/tmp/none"})
        assert answer.status_code == 404 and "/tmp/none" in answer.json()["message"]


async def test_a_streamed_command_tells_things_as_they_happen(http: httpx.AsyncClient, sandbox: str) -> None:
    body = {"sandbox_id": sandbox, "command": "echo one; sleep 0.7; echo two >&2; exit 3", "stream": True}
    times: list[tuple[float, dict[str, Any]]] = []
    async with http.stream("POST", "/sandboxes/run-command", json=body) as answer:
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        async for line in answer.aiter_lines():
            times.append((asyncio.get_running_loop().time(), json.loads(line)))
    told = [record for _, record in times]
    assert [record["type"] for record in told] == ["started", "stdout", "stderr", "ended"]
    assert told[1]["data"] == "one\n" and told[2]["data"] == "two\n" and told[3]["exit_code"] == 3
    assert times[2][0] - times[1][0] > 0.4, "it came all at once"

    async with http.stream(
        "POST", "/sandboxes/run-command", json=body, headers={"Accept": "text/event-stream"}
    ) as answer:
        text = (await answer.aread()).decode()
    assert text.startswith("event: started\ndata: {") and 'event: ended\ndata: {"type":"ended","exit_code":3' in text


async def test_the_same_session_is_the_same_sandbox(http: httpx.AsyncClient) -> None:
    first = await post(http, "create", user_id="ada", session_id="work", metadata={"for": "tests"})
    await post(http, "write-file", sandbox_id=first["sandbox_id"], path="/tmp/kept", content="yes")
    again = await post(http, "create", user_id="ada", session_id="work")
    assert again["sandbox_id"] == first["sandbox_id"] and again["metadata"] == {"for": "tests"}
    other = await http.get("/sandboxes/status", params={"sandbox_id": first["sandbox_id"]})
    assert other.json()["status"] == "running"
    deleted = await post(http, "delete", sandbox_id=first["sandbox_id"])
    assert deleted["status"] == "deleted"
    for route in ("delete", "connect", "run-command"):
        answer = await http.post(f"/sandboxes/{route}", json={"sandbox_id": first["sandbox_id"], "command": "true"})
        assert answer.status_code == 404
        assert answer.json() == {"code": 404, "message": f"sandbox {first['sandbox_id']!r} was not found"}


async def test_a_provider_that_says_no_is_quoted_and_leaves_nothing(http: httpx.AsyncClient) -> None:
    answer = await http.post("/sandboxes/create", json={"user_id": "ada", "template_id": "no-such-template"})
    assert answer.status_code == 502, answer.text
    assert "no-such-template" in answer.json()["message"]
    listed = (await http.get("/sandboxes/list", params={"user_id": "ada"})).json()["sandboxes"]
    assert "no-such-template" not in [sandbox["template_id"] for sandbox in listed]


async def test_the_agents_that_can_be_started_are_listed(quick: Served) -> None:
    async with quick.http() as http:
        listed = (await http.get("/platform/agents")).json()["agents"]
    agents = {agent["id"]: agent for agent in listed}
    assert agents["claude"]["title"] == "Claude Code" and "ANTHROPIC_API_KEY" in agents["claude"]["env"]
    assert agents["claude"]["template"] == "agent" and agents["claude"]["resumes"]
    assert agents["command"]["template"] == agents["scripted"]["template"] == "base"


@pytest.mark.parametrize("path", ["/sandboxes/create", "/sandboxes/run-command", "/sandboxes/status", "/events"])
async def test_without_a_key_there_is_nothing(door: EnvdAddress, path: str) -> None:
    for headers in ({}, {"X-API-KEY": "slp_guess"}, {"Authorization": "Bearer guess"}):
        async with httpx.AsyncClient(base_url=door.url, trust_env=False) as nobody:
            answer = await nobody.request(
                "GET" if "status" in path or "events" in path else "POST", path, headers=headers
            )
        assert answer.status_code == 401
        assert answer.json()["code"] == 401


async def test_requests_that_make_no_sense_are_told_so(http: httpx.AsyncClient) -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("create", {"user_id": "ada", "timeout": 0}, "timeout"),
        ("create", {"user_id": "ada", "agent_type": "unheard-of"}, "unheard-of"),
        ("create", {"user_id": "ada", "provider": "unheard-of"}, "unheard-of"),
        ("create", {"user_id": "ada", "metadata": {"sandlot-session": "x"}}, "sandlot-"),
        ("create", {}, "user_id"),
        ("expose-port", {"sandbox_id": "x", "port": 70000}, "port"),
        ("run-command", {"sandbox_id": "x"}, "command"),
    ]
    for route, body, word in cases:
        answer = await http.post(f"/sandboxes/{route}", json=body)
        assert answer.status_code == 400, (route, answer.text)
        assert word in answer.json()["message"]


async def test_the_client_does_all_of_it(door: EnvdAddress) -> None:
    async with Client(door.url, door.admin) as client:
        sandbox = await client.create(user_id="grace", session_id="client", timeout=600)
        try:
            assert (await sandbox.run("echo hi")).stdout == "hi\n"
            await sandbox.write_file("/tmp/x", "content")
            assert await sandbox.read_file("/tmp/x") == "content"
            assert await sandbox.upload_file("/tmp/y", b"bytes") == 5
            assert await sandbox.download_file("/tmp/y") == b"bytes"
            pieces = [piece async for piece in sandbox.run_streamed("echo a; exit 1")]
            assert [piece.type for piece in pieces] == ["started", "stdout", "ended"] and pieces[-1].exit_code == 1
            assert (await client.connect(sandbox.id)).id == sandbox.id
            assert (await sandbox.set_timeout(900)).timeout == 900
            assert "localhost" in await sandbox.expose_port(80)
            assert sandbox.id in [info.sandbox_id for info in await client.list(user_id="grace")]
            assert (await sandbox.status()).status == "running"
            seen: list[str] = []
            async for event in client.events(after=0, sandbox_id=sandbox.id):
                seen.append(event.type)
                if event.type == "command.ended" and event.data["exit_code"] == 1:
                    break
            assert seen[:2] == ["created", "ready"] and "command.output" in seen and "file.changed" in seen
        finally:
            await sandbox.delete()
        with pytest.raises(NotFound):
            await sandbox.status()
