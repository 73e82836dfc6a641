"""Claude Code on a laptop, given the platform's one address: it works in a sandbox of its user's own."""

from __future__ import annotations

import pytest
from tests.agents.running import Laptop
from tests.e2e.server import Server
from tests.models.script import script
from tests.models.server import ScriptedModel

from sandlot.client import Client

pytestmark = pytest.mark.timeout(300)
PROGRAM = "print(sum(n * n for n in range(10)))"


def key_of(server: Server, user: str) -> str:
    return server.cli("platform", "key", "create", "--user", user).stdout.strip()


def address(server: Server, key: str) -> dict[str, object]:
    headers = {"Authorization": f"Bearer {key}"}
    return {"type": "http", "url": f"http://127.0.0.1:{server.port}/mcp", "headers": headers}


async def test_it_writes_a_program_runs_it_and_reads_what_it_made(container_server: Server, laptop: Laptop) -> None:
    server = container_server
    key = key_of(server, "ada")
    plan = script(
        {"calls": [{"tool": "write_file", "input": {"path": "squares/sum.py", "content": PROGRAM}}]},
        {
            "expect": "written to squares/sum.py",
            "calls": [{"tool": "run_command", "input": {"command": "python3 squares/sum.py | tee squares/sum.txt"}}],
        },
        {"expect": "285", "calls": [{"tool": "read_file", "input": {"path": "squares/sum.txt"}}]},
        {"expect": "285", "capture": {"sum": r"(\d+)"}, "say": "The sum is ${sum}."},
    )
    with ScriptedModel(plan) as model:
        report = laptop.run(model, "Sum the first squares.", {"sandbox": address(server, key)})
    assert model.problems == []
    assert report.servers == {"sandbox": "connected"}
    assert report.result == "The sum is 285."
    assert not any(result.failed for result in model.results)
    assert model.results[2].text.strip() == "285", "the model gets the text itself, not JSON around it"
    assert not list(laptop.home.rglob("sum.*")), "the work was done in the sandbox, not here"
    async with Client(f"http://127.0.0.1:{server.port}", key) as client:
        (info,) = await client.list()
        sandbox = await client.connect(info.sandbox_id)
        assert await sandbox.read_file("squares/sum.txt") == "285\n"
        await sandbox.delete()


def test_a_tool_that_fails_is_told_to_the_model_as_a_failure(container_server: Server, laptop: Laptop) -> None:
    server = container_server
    plan = script(
        {"calls": [{"tool": "read_file", "input": {"path": "/nowhere/at/all"}}]},
        {"expect": "/nowhere/at/all", "calls": [{"tool": "run_command", "input": {"command": "echo no >&2; exit 3"}}]},
        {"expect": "no", "calls": [{"tool": "delete_sandbox", "input": {}}]},
        {"expect": "deleted", "say": "Gone."},
    )
    with ScriptedModel(plan) as model:
        report = laptop.run(model, "Try.", {"sandbox": address(server, key_of(server, "bob"))})
    assert (model.problems, report.result) == ([], "Gone.")
    assert [result.failed for result in model.results] == [True, False, False], "a command's exit code is a result"
    assert '"exit_code": 3' in model.results[1].text or '"exit_code":3' in model.results[1].text


def test_without_a_valid_key_there_are_no_tools(container_server: Server, laptop: Laptop) -> None:
    server = container_server
    with ScriptedModel(script("There is nothing that I could use.", chat=True)) as model:
        report = laptop.run(model, "Anything there?", {"sandbox": address(server, "slp_guess")})
    assert report.servers["sandbox"] in ("failed", "needs-auth")
    assert not [tool for tool in report.tools if tool.startswith("mcp__sandbox__")]
