"""An agent at work in a sandbox: it reads, edits and checks a file, with a scripted model beside it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.agents.clis import AFTER, BEFORE, FILE, LAST_WORD, cli
from tests.agents.running import run_inside
from tests.e2e.server import Server
from tests.models.inside import ModelInside

pytestmark = pytest.mark.timeout(400)
WORK = "/home/user/work"


def test_claude_code_edits_a_file_in_a_sandbox(server: Server, claude: Path) -> None:
    sandbox = server.create(timeout=600, allow_internet_access=False)
    with claude.open("rb") as program:
        sandbox.files.write("/home/user/bin/claude", program, request_timeout=120)
    sandbox.commands.run("chmod +x bin/claude")
    sandbox.files.write(f"{WORK}/{FILE}", BEFORE)
    model = ModelInside(sandbox)
    agent = cli("claude", model.url, f"{WORK}/{FILE}")
    model.start(agent.edit)
    done = run_inside(sandbox, replace(agent, argv=("/home/user/bin/claude", *agent.argv[1:])), WORK)
    state = model.state()
    assert state["problems"] == [], done.stdout
    assert sandbox.files.read(f"{WORK}/{FILE}") == AFTER
    assert json.loads(done.stdout.splitlines()[-1])["result"] == LAST_WORD
    assert [result["failed"] for result in state["results"]] == [False, False, False]
    assert "hello from the agent" in state["results"][-1]["text"], "the model was told what the shell said"
    sandbox.kill()
