"""The examples as their readers run them: in environments of their own, with a scripted model in place of a real one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.agents import packages
from tests.agents.clis import QUIET, bare_environment
from tests.agents.running import NOWHERE, WITHIN_S
from tests.e2e.server import Server
from tests.models.script import script
from tests.models.server import ScriptedModel

from sandlot.client import Client

pytestmark = pytest.mark.timeout(600)
EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAM = "from pathlib import Path\nPath('squares/sum.txt').write_text(str(sum(n * n for n in range(10))))\n"
PLAN = script(
    {"say": "I write it.", "calls": [{"tool": "write_file", "input": {"path": "squares/sum.py", "content": PROGRAM}}]},
    {
        "expect": "written to squares/sum.py",
        "calls": [{"tool": "run_command", "input": {"command": "python3 squares/sum.py"}}],
    },
    {"expect": "exit_code", "calls": [{"tool": "read_file", "input": {"path": "squares/nothing.txt"}}]},
    {"expect": "nothing.txt", "calls": [{"tool": "read_file", "input": {"path": "squares/sum.txt"}}]},
    {"capture": {"sum": r"(\d+)"}, "say": "It says ${sum}."},
)
CASES = [
    ("langchain", {"MODEL": "anthropic:scripted", "ANTHROPIC_BASE_URL": "{url}", "ANTHROPIC_API_KEY": "sk-scripted"}),
    ("langchain", {"MODEL": "openai:scripted", "OPENAI_BASE_URL": "{url}/v1", "OPENAI_API_KEY": "sk-scripted"}),
    ("claude-agent-sdk", {"ANTHROPIC_BASE_URL": "{url}", "ANTHROPIC_API_KEY": "sk-scripted"}),
]


@pytest.mark.parametrize(
    ("example", "pointed"), CASES, ids=["langchain-anthropic", "langchain-openai", "claude-agent-sdk"]
)
async def test_an_example_writes_a_program_runs_it_and_reads_what_it_made(
    container_server: Server, tmp_path: Path, example: str, pointed: dict[str, str]
) -> None:
    user = f"{example}-{pointed.get('MODEL', 'claude').partition(':')[0]}"
    key = container_server.cli("platform", "key", "create", "--user", user).stdout.strip()
    with ScriptedModel(PLAN) as model:
        variables = {
            **{name: text.replace("{url}", model.url) for name, text in pointed.items()},
            "SANDBOX_MCP_URL": f"http://127.0.0.1:{container_server.port}/mcp",
            "SANDBOX_MCP_TOKEN": key,
            "HOME": str(tmp_path),
        }
        said = run(example, tmp_path, variables)
    assert model.problems == []
    assert said.splitlines()[-1] == "It says 285.", said
    assert len(model.results) == 4
    async with Client(f"http://127.0.0.1:{container_server.port}", key) as client:
        (info,) = await client.list()
        sandbox = await client.connect(info.sandbox_id)
        assert await sandbox.read_file("squares/sum.txt") == "285"
        await sandbox.delete()


def run(example: str, place: Path, variables: dict[str, str]) -> str:
    """Where nothing but this machine can be reached."""
    python = packages.python_with(EXAMPLES / example / "requirements.lock")
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), NOWHERE)
    here = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
    done = subprocess.run(
        [str(python), str(EXAMPLES / example / "agent.py")], cwd=place, capture_output=True, text=True, timeout=WITHIN_S,
        env={**bare_environment(), **QUIET, **proxies, **here, **variables}, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
