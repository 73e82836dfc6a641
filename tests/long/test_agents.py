"""Every agent of the `agent` template edits a file in a sandbox, with a scripted model beside it, under each runtime."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from e2b import Sandbox
from tests.agents.clis import AFTER, BEFORE, FILE, NAMES, McpServer, cli, edit_with_tools
from tests.agents.running import run_inside, tools_token
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server
from tests.models.inside import ModelInside

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
WORK = "/home/user/work"


@pytest.fixture(scope="module", params=["gvisor", "container"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With the template built as users build it."""
    with in_pristine(tmp_path_factory, request.param) as server:
        server.cli("template", "build", "--stock", "node", "agent", timeout=1500)
        yield server


@pytest.fixture
def sandbox(server: Server) -> Iterator[Sandbox]:
    """Without a way out: no agent can reach a real model by mistake."""
    sandbox = server.create("agent", timeout=900, allow_internet_access=False)
    yield sandbox
    sandbox.kill()


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_of_the_agent_template_edits_a_file(sandbox: Sandbox, name: str) -> None:
    sandbox.files.write(f"{WORK}/{FILE}", BEFORE)
    model = ModelInside(sandbox)
    agent = cli(name, model.url, f"{WORK}/{FILE}")
    model.start(agent.edit)
    done = run_inside(sandbox, agent, WORK)
    state = model.state()
    assert state["problems"] == [], f"{done.stdout}\n{done.stderr}"
    assert sandbox.files.read(f"{WORK}/{FILE}") == AFTER
    assert not any(result["failed"] for result in state["results"])
    assert "hello from the agent" in state["results"][-1]["text"], "the model was told what the file says now"


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_of_the_agent_template_uses_the_tools_beside_it(sandbox: Sandbox, name: str) -> None:
    sandbox.files.write(f"{WORK}/{FILE}", BEFORE)
    token = tools_token(sandbox)
    model = ModelInside(sandbox)
    tools = McpServer("http://127.0.0.1:6060/mcp", token)
    model.start(edit_with_tools(f"{WORK}/{FILE}"))
    done = run_inside(sandbox, cli(name, model.url, f"{WORK}/{FILE}", tools=tools), WORK)
    assert model.state()["problems"] == [], f"{done.stdout}\n{done.stderr}"
    assert sandbox.files.read(f"{WORK}/{FILE}") == AFTER
