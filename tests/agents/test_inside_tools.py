"""Claude Code on a laptop, given the tools inside one sandbox: its address and its token are all that it needs."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from e2b import Sandbox
from tests.agents.running import Laptop
from tests.e2e.server import Server
from tests.models.script import script
from tests.models.server import ScriptedModel

pytestmark = pytest.mark.timeout(600)
ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "templates" / "agent"
TEMPLATE = "with-tools"
PROGRAM = "import sys\nprint(sum(n * n for n in range(int(sys.argv[1]))))\n"


@pytest.fixture(scope="module")
def server(server_with: Callable[[str], Server], tmp_path_factory: pytest.TempPathFactory) -> Server:
    """With the agent template's steps for the tools upon `base`; under gVisor they are up in its saved state."""
    server = server_with("gvisor")
    context = tmp_path_factory.mktemp("with-tools")
    shutil.copytree(ROOT / "guest" / "tools", context / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    (context / "Dockerfile").write_text(f"FROM e2bdev/base\nUSER root\n{tool_steps()}")
    recipe = tomllib.loads((RECIPE / "template.toml").read_text())
    start = recipe.get("start_cmd", "/opt/sandlot-tools/tools/start.sh")
    ready = recipe.get("ready_cmd", "curl -fsS -o /dev/null http://localhost:6060/health")
    commands = ("--start-cmd", start, "--ready-cmd", ready)
    server.cli("template", "build", "--file", str(context / "Dockerfile"), "--name", TEMPLATE, *commands)
    return server


def tool_steps() -> str:
    """The part of the agent template's Dockerfile that has the tools; the agents before it take minutes."""
    lines = (RECIPE / "Dockerfile").read_text().splitlines()
    first = next((number for number, line in enumerate(lines) if line.startswith("COPY tools")), None)
    if first is None:
        return "COPY tools /opt/sandlot-tools/tools\nRUN sh /opt/sandlot-tools/tools/install.sh\nUSER user\nWORKDIR /home/user"
    return "\n".join(lines[first:])


def address(server: Server, sandbox: Sandbox, token: str) -> dict[str, Any]:
    """By the server's own address: names below localhost do not resolve everywhere."""
    headers = {
        "Authorization": f"Bearer {token}",
        "E2b-Sandbox-Id": sandbox.sandbox_id,
        "E2b-Sandbox-Port": "6060",
    }
    return {"type": "http", "url": f"http://127.0.0.1:{server.port}/mcp", "headers": headers}


def test_it_writes_edits_searches_and_runs_with_the_tools_of_a_sandbox(server: Server, laptop: Laptop) -> None:
    sandbox = server.create(TEMPLATE, timeout=600, envs={"COUNT": "11"})
    token = sandbox.commands.run("sandlot-tools token").stdout.strip()
    edit = {"path": "squares/sum.py", "old": "print(sum(", "new": "print('total', sum("}
    plan = script(
        {"calls": [{"tool": "write_file", "input": {"path": "squares/sum.py", "content": PROGRAM}}]},
        {"calls": [{"tool": "edit_file", "input": edit}]},
        {"calls": [{"tool": "grep", "input": {"pattern": "total", "path": "squares"}}]},
        {"expect": "sum.py", "calls": [{"tool": "run_command", "input": {"command": "python3 squares/sum.py $COUNT"}}]},
        {
            "expect": "total 385",
            "calls": [{"tool": "shell_start", "input": {"command": "python3 -u squares/sum.py 3; read line; echo got $line"}}],
        },
        {"say": "Done."},
    )  # fmt: skip
    with ScriptedModel(plan) as model:
        report = laptop.run(model, "Sum the first squares.", {"inside": address(server, sandbox, token)})
    assert model.problems == []
    assert (report.servers, report.result) == ({"inside": "connected"}, "Done.")
    assert [result.text for result in model.results if result.failed] == []
    assert "print('total'" in sandbox.files.read("squares/sum.py")
    sandbox.kill()


def test_a_token_of_another_sandbox_opens_nothing(server: Server, laptop: Laptop) -> None:
    sandbox, other = server.create(TEMPLATE), server.create(TEMPLATE)
    tokens = [each.commands.run("sandlot-tools token").stdout.strip() for each in (sandbox, other)]
    with ScriptedModel(script("Nothing here.", chat=True)) as model:
        report = laptop.run(model, "Anything there?", {"inside": address(server, sandbox, tokens[1])})
    assert report.servers["inside"] in ("failed", "needs-auth")
    sandbox.kill()
    other.kill()
