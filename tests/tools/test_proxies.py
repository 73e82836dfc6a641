"""The user's own MCP servers through the tools: real ones over stdio and HTTP, and broken ones."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp.shared.exceptions import MCPError
from tests.e2e.server import free_port
from tests.tools.conftest import Another, Caller, connected, python

SERVER = Path(__file__).with_name("servers.py")


def stdio(**options: object) -> dict[str, object]:
    return {"command": str(python()), "args": [str(SERVER)], **options}


@pytest.fixture
def remote() -> Iterator[str]:
    """A server that is reached over HTTP."""
    port = free_port()
    process = subprocess.Popen([str(python()), str(SERVER), str(port)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            try:
                httpx.get(f"http://127.0.0.1:{port}/mcp", trust_env=False)
                break
            except httpx.TransportError:
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def configure(home: Path, **servers: object) -> None:
    part = home / ".mcp.json.part"
    part.write_text(json.dumps({"mcpServers": servers}))
    part.rename(home / ".mcp.json")


async def states(call: Caller) -> dict[str, str]:
    """How each server is, once none is starting any more."""
    deadline = time.monotonic() + 60
    while True:
        told = {one["server"]: one for one in (await call.data("mcp_servers"))["servers"]}
        if all(one["state"] != "starting" for one in told.values()) or time.monotonic() > deadline:
            return {
                name: f"{one['state']} {one.get('problem', '')} {one.get('stderr', '')}" for name, one in told.items()
            }


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_servers_over_stdio_and_http_work_and_broken_ones_are_reported(
    another: Another, remote: str, mode: str
) -> None:
    with another() as tools:
        configure(
            tools.home,
            calc=stdio(env={"SECRET": "${KEY}", "PLAIN": "${NONE:-fallback}"}),
            web={"type": "http", "url": remote, "headers": {"X-Key": "${KEY}"}},
            broken={"command": "/bin/sh", "args": ["-c", "echo no licence >&2; exit 3"]},
            absent={"command": "nonesuch-program"},
            down={"url": f"http://127.0.0.1:{free_port()}/mcp"},
            wrong={"url": "ftp://example.org"},
            unknown={"command": "x", "args": ["${NOBODY_SET_THIS}"]},
            off={"command": "nonesuch", "disabled": True},
        )
        token = tools.token(KEY="the-key")
        async with connected(tools.url, token, mode) as call:
            told = await states(call)
            assert told["calc"].startswith("ready") and told["web"].startswith("ready")
            assert told["broken"].startswith("failed") and "no licence" in told["broken"]
            assert "No such file" in told["absent"] and told["down"].startswith("failed")
            assert "http://" in told["wrong"] and "NOBODY_SET_THIS" in told["unknown"] and "off" not in told
            assert await call.names() >= {"calc__add", "web__add", "read_file"}
            assert await call("calc__add", a=40, b=2) == await call("web__add", a=40, b=2) == "42"
            assert "validation error" in await call.failure("calc__add", a="x", b=2)
            assert "'broken' is not ready" in await call.failure("broken__tool")
            inside = json.loads(await call("calc__surroundings"))
            assert inside["SECRET"] == "the-key" and inside["PLAIN"] == "fallback" and inside["HOME"] == str(tools.home)
            headers = json.loads(await call("web__surroundings"))
            assert headers["x-key"] == "the-key" and token not in json.dumps(headers), "our token is nobody else's"
            assert await call("web__steps") == await call("calc__steps") == "done"
            assert [message for _, _, message in call.progress] == ["step 0", "step 1", "step 2"] * 2
            assert len(await call("calc__flood")) < 300_000


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_prompts_and_resources_come_under_the_names_of_their_servers(
    another: Another, remote: str, mode: str
) -> None:
    broken = {"command": "/bin/false"}
    with another() as tools:
        configure(tools.home, My_calc=stdio(), web={"url": remote}, broken=broken)
        token = tools.token()
        async with connected(tools.url, token, mode) as call:
            await states(call)
            client = call.client
            prompts = {one.name: one for one in (await client.list_prompts()).prompts}
            assert set(prompts) == {"My_calc__greet", "web__greet"}
            assert [(one.name, one.required) for one in prompts["web__greet"].arguments or ()] == [
                ("name", True),
                ("style", False),
            ]
            greeting = await client.get_prompt("My_calc__greet", {"name": "Ada"})
            assert [message.content.text for message in greeting.messages] == ["Greet Ada kindly."]  # type: ignore[union-attr]
            found = {str(one.uri): one for one in (await client.list_resources()).resources}
            assert {"my.calc+memo:///today", "web+memo:///picture", "web+seen://headers"} <= set(found)
            assert found["web+memo:///today"].mime_type == "text/markdown"
            listed = (await client.list_resource_templates()).resource_templates
            assert "web+memo:///of/{day}{?short}" in {one.uri_template for one in listed}

            async def read(uri: str) -> Any:
                (content,) = (await client.read_resource(uri)).contents
                return content

            assert (await read("my.calc+memo:///today")).text == "# Rest"
            assert base64.b64decode((await read("my.calc+memo:///picture")).blob) == b"\x89PNG"
            assert (await read("web+memo:///of/may%20day?short=true")).text == "may day: w"
            assert token not in (await read("web+seen://headers")).text, "our token is nobody else's"
            for wrong in ("web+memo:///of", "nobody+memo:///today", "memo:///today"):
                with pytest.raises(MCPError):
                    await read(wrong)
            with pytest.raises(MCPError, match="'broken' is not ready"):
                await client.get_prompt("broken__greet", {})


async def test_the_configuration_can_change_and_a_server_that_ended_is_started_again(another: Another) -> None:
    with another() as tools:
        async with tools.caller() as call:
            assert (await call.data("mcp_servers"))["servers"] == []
            configure(tools.home, one=stdio())
            assert await call("one__add", a=1, b=2) == "3"
            assert "Connection closed" in await call.failure("one__end")
            await call("mcp_servers", restart="one")
            assert await call("one__add", a=1, b=2) == "3"
            configure(tools.home, two=stdio())
            assert await call("two__add", a=1, b=2) == "3"
            assert not any(name.startswith("one__") for name in await call.names())
            (tools.home / ".mcp.json").write_text("{not json")
            assert "must be JSON" in (await call.data("mcp_servers"))["problem"]
            assert "read_file" in await call.names()
