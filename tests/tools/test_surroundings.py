"""Ports, the list of things to do, and the agents that are installed, called by a real MCP client."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from tests.tools.conftest import Another, Caller, Tools, connected


async def test_listening_ports_are_listed_with_who_listens(tools: Tools) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        async with tools.caller() as call:
            entry = next(one for one in (await call.data("list_ports"))["ports"] if one["port"] == port)
            assert entry["addresses"] == ["127.0.0.1"] and entry["program"] and entry["pid"] > 1


async def test_a_port_has_the_address_by_which_the_caller_came(tools: Tools) -> None:
    headers = {"Authorization": f"Bearer {tools.token()}", "X-Forwarded-Proto": "https"}
    headers["X-Forwarded-Host"] = "6060-isandbox1.example.org"
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http,
        Client(streamable_http_client(tools.url, http_client=http)) as client,
    ):
        assert await Caller(client)("expose_port", port=3000) == "https://3000-isandbox1.example.org"
    async with tools.caller() as call:
        assert "does not know its own address" in await call.failure("expose_port", port=3000)


async def test_the_list_of_things_to_do_outlives_the_server(another: Another) -> None:
    items = [{"content": "write", "status": "completed"}, {"content": "test", "status": "in_progress"}]
    with another() as tools:
        async with tools.caller() as call:
            assert await call.data("todo_read") == {"items": []}
            await call("todo_write", items=items)
            assert "status" in await call.failure("todo_write", items=[{"content": "x", "status": "maybe"}])
    with another() as tools:
        async with tools.caller() as call:
            assert await call.data("todo_read") == {"items": items}


def agent(place: Path, name: str, script: str) -> None:
    """A program that plays an agent."""
    place.mkdir(exist_ok=True)
    (place / name).write_text(f"#!/bin/sh\n{script}\n")
    (place / name).chmod(0o755)


async def test_only_installed_agents_are_tools_and_they_get_the_prompt_as_it_is(
    another: Another, tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    answer = '{"type": "result", "result": "all done", "is_error": false, "session_id": "s1", "num_turns": 2}'
    agent(programs, "claude", f"echo \"$@\" > seen; cat >> seen; echo $IS_SANDBOX $KEY >> seen; echo '{answer}'")
    with another(PATH=f"{programs}:/usr/bin:/bin") as tools:
        (tools.home / "project").mkdir()
        async with connected(tools.url, tools.token(KEY="model-key")) as call:
            assert await call.names() & {"claude_code", "codex", "gemini", "opencode"} == {"claude_code"}
            told = await call.data("claude_code", prompt="-fix 'it'\nplease", cwd="project", model="opus")
            assert told["result"] == "all done" and told["exit_code"] == 0 and told["session_id"] == "s1"
            seen = (tools.home / "project" / "seen").read_text().splitlines()
            assert "-p" in seen[0] and "--model opus" in seen[0]
            assert seen[1:] == ["-fix 'it'", "please1 model-key"]
            assert "not the name of a model" in await call.failure("claude_code", prompt="x", model="--evil")

            agent(programs, "codex", "echo thinking >&2; cat; exit 2")
            assert "codex" in await call.names(), "one that is installed later is a tool from then on"
            failed = await call.data("codex", prompt="do")
            assert failed == {"result": "do", "exit_code": 2, "stderr": "thinking\n"}
            agent(programs, "codex", "echo begun; sleep 1000")
            slow = await call.data("codex", prompt="do", timeout=1)
            assert slow["timed_out"] is True and slow["result"] == "begun"
