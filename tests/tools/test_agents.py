"""The guest's reader of `agents/`: it cannot import the host's, and must read the same."""

from __future__ import annotations

import json
import subprocess

from tests.tools.conftest import ROOT, SOURCE, python

from sandlot.platform.agents.descriptions import load_agents

READ = """
import json, sys
from tools.agents import descriptions, load
agents, environment = load(descriptions())
commands = {agent.tool: [agent.command(agent.program, model) for model in (None, "a-model")] for agent in agents}
print(json.dumps([str(descriptions()), commands, environment]))
"""


def test_agents_are_started_as_described() -> None:
    done = subprocess.run([str(python()), "-c", READ], cwd=SOURCE.parent, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    directory, commands, environment = json.loads(done.stdout)
    assert directory == str(ROOT / "agents")
    agents = [agent for agent in load_agents().values() if agent.tool is not None]
    assert commands == {
        agent.tool: [list(agent.answer_command(model)) for model in (None, "a-model")] for agent in agents
    }
    wanted = {name: value for agent in agents for name, value in agent.environment.items()}
    assert environment == {"TERM": "dumb", **wanted}
