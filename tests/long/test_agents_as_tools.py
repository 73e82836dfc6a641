"""Agents as tools of a sandbox: an MCP client hands each a task, and Claude Code elsewhere hands one on to Claude Code inside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from e2b import Sandbox
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from tests.agents import packages
from tests.agents.clis import AFTER, BEFORE, FILE, LAST_WORD, NAMES, PROMPT, cli
from tests.agents.running import Laptop, tools_token
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server
from tests.models.inside import PORT, ModelInside
from tests.models.script import script
from tests.models.server import ScriptedModel

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
WORK = "/home/user/work"
PATH = f"{WORK}/{FILE}"
MODEL = f"http://127.0.0.1:{PORT}"
TOOL = {"claude": "claude_code"}


@pytest.fixture(scope="module", params=["gvisor", "container"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with in_pristine(tmp_path_factory, request.param) as server:
        server.cli("template", "build", "--stock", "node", "agent", timeout=1500)
        yield server


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    """Its variables point every agent at the model inside, as a user's would point them at a real one."""
    agents = [cli(name, MODEL, PATH) for name in NAMES]
    envs = {name: value for agent in agents for name, value in agent.environment.items()}
    sandbox = server.create("agent", timeout=1800, allow_internet_access=False, envs=envs)
    for path, text in [file for agent in agents for file in agent.files.items()]:
        sandbox.files.write(f"/home/user/{path}", text)
    yield sandbox
    sandbox.kill()


@pytest.fixture(scope="module")
def model(sandbox: Sandbox) -> ModelInside:
    return ModelInside(sandbox).start(script("Nothing yet."))


@pytest.fixture(scope="module")
def headers(sandbox: Sandbox) -> dict[str, str]:
    return {
        "Authorization": f"Bearer {tools_token(sandbox)}",
        "E2b-Sandbox-Id": sandbox.sandbox_id,
        "E2b-Sandbox-Port": "6060",
    }


async def call(server: Server, headers: dict[str, str], tool: str, **arguments: Any) -> Any:
    http = httpx2.AsyncClient(headers=headers, timeout=300, trust_env=False)
    transport = streamable_http_client(f"http://127.0.0.1:{server.port}/mcp", http_client=http)
    async with http, Client(transport) as client:
        result = await client.call_tool(tool, arguments)
        text = "".join(part.text for part in result.content if part.type == "text")
        assert not result.is_error, text
        return json.loads(text)


@pytest.mark.parametrize("name", NAMES)
async def test_an_agent_does_a_task_as_a_tool(
    server: Server, sandbox: Sandbox, model: ModelInside, headers: dict[str, str], name: str
) -> None:
    sandbox.files.write(PATH, BEFORE)
    model.replace(cli(name, MODEL, PATH).edit)
    told = await call(server, headers, TOOL.get(name, name), prompt=PROMPT, cwd=WORK)
    assert model.state()["problems"] == [], told
    assert told["exit_code"] == 0, told
    assert LAST_WORD in told["result"]
    assert sandbox.files.read(PATH) == AFTER


def test_claude_code_elsewhere_hands_a_task_to_claude_code_inside(
    server: Server, sandbox: Sandbox, model: ModelInside, headers: dict[str, str], tmp_path: Path
) -> None:
    sandbox.files.write(PATH, BEFORE)
    model.replace(cli("claude", MODEL, PATH).edit)
    plan = script(
        {"calls": [{"tool": "claude_code", "input": {"prompt": PROMPT, "cwd": WORK}}]},
        {"expect": "in my name", "calls": [{"tool": "read_file", "input": {"path": PATH}}]},
        {"expect": "hello from the agent", "say": "It was done by somebody else."},
    )
    address = {"type": "http", "url": f"http://127.0.0.1:{server.port}/mcp", "headers": headers}
    with ScriptedModel(plan) as outside:
        report = Laptop(packages.claude(), tmp_path).run(outside, "Have it done.", {"inside": address})
    assert (outside.problems, model.state()["problems"]) == ([], [])
    assert report.result == "It was done by somebody else."
    assert sandbox.files.read(PATH) == AFTER
