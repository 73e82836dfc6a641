"""Who gets to the tools: tokens that this very sandbox admitted, and nobody else."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import socket
import time

import pytest
from tests.tools.conftest import Another, Tools, connected

EVERY = {
    "read_file", "read_files", "write_file", "edit_file", "multi_edit_file", "list_directory", "glob", "grep",
    "run_command", "shell_start", "shell_view", "shell_write", "shell_stop", "shell_list",
    "browser_navigate", "browser_snapshot", "browser_click", "browser_type", "browser_press", "browser_scroll",
    "browser_tabs", "browser_screenshot", "browser_wait",
    "expose_port", "list_ports", "todo_read", "todo_write", "mcp_servers",
}  # fmt: skip


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_with_a_token_finds_every_tool_described(tools: Tools, mode: str) -> None:
    async with tools.caller(mode) as call:
        listed = (await call.client.list_tools()).tools
        assert {tool.name for tool in listed} >= EVERY
        assert all(tool.description for tool in listed)
        assert "hello" in await call("run_command", command="echo hello")


def test_without_a_token_nothing_is_answered_and_the_way_to_one_is_told(another: Another) -> None:
    with another() as tools, tools.http() as http:
        refused = http.post("/mcp", json={}, headers={"Authorization": "Bearer guess"})
        assert refused.status_code == 401 and "sandlot-tools token" in refused.json()["error"]
        tools.token()
        assert "Bearer <token>" in http.post("/mcp", json={}).json()["error"]
        wrong = http.post("/mcp", json={}, headers={"Authorization": "Bearer guess"})
        assert wrong.status_code == 401 and "not a token of this sandbox" in wrong.json()["error"]
        assert wrong.headers["www-authenticate"].startswith("Bearer")
        assert http.get("/health").json()["status"] == "ok"
        assert http.get("/other").status_code == 404


async def test_a_sandbox_that_woke_up_from_anothers_state_wants_a_token_of_its_own(another: Another) -> None:
    with another() as tools, tools.http() as http:
        first = tools.token(ONLY="the first one's")
        async with connected(tools.url, first) as call:
            assert "first one's" in await call("run_command", command="echo $ONLY")
        tools.identity.write_text("isandbox2\n")
        again = http.post("/mcp", json={}, headers={"Authorization": f"Bearer {first}"})
        assert again.status_code == 401 and "admitted no token yet" in again.json()["error"]
        async with connected(tools.url, tools.token()) as call:
            assert "first one's" not in await call("run_command", command="echo $ONLY")
        assert len(list((tools.state / "tokens").iterdir())) == 1, "what the other admitted is forgotten"


async def test_a_caller_may_bring_its_own_token_and_only_its_hash_is_kept(another: Another) -> None:
    token = f"t{secrets.token_urlsafe()}"
    with another() as tools:
        admitted = tools.command("admit", hashlib.sha256(token.encode()).hexdigest(), "--url", "https://6060-x.dev")
        assert admitted.returncode == 0, admitted.stderr
        async with connected(tools.url, token) as call:
            assert await call("expose_port", port=80) == "https://80-x.dev"
        kept = [path.read_text() for path in tools.state.rglob("*.json")]
        assert kept and not any(token in text for text in kept)
        assert all(path.stat().st_mode & 0o077 == 0 for path in tools.state.rglob("*.json"))
        assert "64 hexadecimal" in tools.command("admit", token).stderr


async def test_the_variables_of_the_sandbox_reach_what_the_tools_start(tools: Tools) -> None:
    made = tools.token(MODEL_KEY="it's $ecret\nand long", PWD="/nowhere")
    async with connected(tools.url, made) as call:
        assert json.loads(await call("run_command", command="env -0"))["stdout"].count("it's $ecret\nand long") == 1
        session = await call.data("shell_start", command='echo "$MODEL_KEY"; pwd', wait=30)
        view = await call.data("shell_view", session=session["session"], since=0, wait=30)
        assert "it's $ecret" in view["output"] and "/nowhere" not in view["output"]


def test_the_oldest_tokens_go_when_there_are_too_many(another: Another) -> None:
    with another() as tools, tools.http() as http:
        first, *_, last = [tools.token() for _ in range(17)]
        statuses = [
            http.post("/mcp", json={}, headers={"Authorization": f"Bearer {token}"}).status_code
            for token in (first, last)
        ]
        assert statuses[0] == 401 and statuses[1] not in (401, 403)


def test_a_request_that_is_too_large_is_refused_before_it_is_read(tools: Tools) -> None:
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tools.token()}\r\nContent-Length: {33 << 20}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", tools.port), timeout=60) as connection:
        connection.sendall(head.encode())
        assert b" 413 " in connection.recv(4096)


async def test_the_tools_tell_for_how_long_nobody_has_used_them(another: Another) -> None:
    with another() as tools:
        port = str(tools.port)
        async with tools.caller() as call:
            await call("run_command", command="true")
            working = asyncio.create_task(call("run_command", command="sleep 1000", timeout=80))
            deadline = time.monotonic() + 60
            while (idle := (await asyncio.to_thread(tools.command, "idle", "--port", port)).stdout.strip()) != "0.0":
                assert time.monotonic() < deadline, f"a call is under way, and the tools say {idle!r}"
            working.cancel()
            await asyncio.wait((working,))
    assert "does not answer" in tools.command("idle", "--port", port).stderr
