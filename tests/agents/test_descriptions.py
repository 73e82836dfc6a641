"""Agents are described once, in `agents/`: what is written about them elsewhere agrees with that."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from tests.agents.clis import EDITS, NAMES, TOOLS

from sandlot.platform.agents.descriptions import AgentDescription, load_agents
from sandlot.platform.core.errors import ConfigurationError

ROOT = Path(__file__).parents[2]
AGENTS = {name: agent for name, agent in load_agents().items() if agent.install is not None}
BEGIN, END = "<!-- from agents/*.toml: begin -->\n", "<!-- end -->\n"


def described() -> str:
    """What the guide says about all agents: a table, and the files that point them at a model."""
    lines = ["| agent | unattended | another model endpoint |", "| --- | --- | --- |"]
    for agent in AGENTS.values():
        words = " ".join(agent.stream_command("PROMPT", agent.model.form if agent.model is not None else None))
        means = [f"`{name}`" for name in agent.endpoint.environment]
        means += [f"`~/{path}`" for path in agent.endpoint.files]
        lines.append(f"| {agent.title} | `{words}` | {', '.join(means)} |")
    for agent in AGENTS.values():
        pointed = agent.pointed_at("http://models.example.org", key="KEY", model="my-model", provider="mine")
        for path, text in pointed.files.items():
            lines += ["", f"`~/{path}`:", "", f"```{path.rpartition('.')[2]}", text.strip(), "```"]
    return "\n".join(lines) + "\n"


def test_the_guide_says_what_the_descriptions_say() -> None:
    text = (ROOT / "docs/how-to/agents.md").read_text()
    found = text.partition(BEGIN)[2].partition(END)[0]
    assert found == described(), f"docs/how-to/agents.md must have this between its marks:\n{described()}"


@pytest.mark.parametrize("agent", AGENTS.values(), ids=lambda agent: agent.id)
def test_the_template_installs_it_and_tells_it_what_it_wants(agent: AgentDescription) -> None:
    assert agent.install is not None
    dockerfile = (ROOT / "templates/agent/Dockerfile").read_text()
    argument = agent.install.build_argument
    install = (
        rf"ARG {argument}=1\nRUN \[ \"\${argument}\" != 1 \] \|\| npm install .*{re.escape(agent.install.package)} "
    )
    assert re.search(install, dockerfile)
    for name in agent.environment:
        assert name in dockerfile
    readme = (ROOT / "templates/agent/README.md").read_text()
    assert f"| {agent.title} | `{agent.program}` | `--build-arg {argument}=0` |" in readme
    smoke = tomllib.loads((ROOT / "templates/agent/template.toml").read_text())["smoke"]["commands"]
    assert any(f"{agent.program} --version" in command for command in smoke)


def test_commands_and_files_are_filled_in() -> None:
    claude = AGENTS["claude"].stream_command("do it", "opus")
    assert shlex.join(claude).startswith("claude -p 'do it' --model opus --output-format stream-json")
    assert "--model" not in AGENTS["claude"].answer_command()
    for agent in AGENTS.values():
        pointed = agent.pointed_at("http://m:1", key="k", model="m", provider="p")
        for path, text in pointed.files.items():
            json.loads(text) if path.endswith(".json") else tomllib.loads(text)
            assert not re.search(r"{(url|key|model|provider)}", text)
        assert "k" in pointed.environment.values() and "sk" not in repr(pointed)


def test_every_agent_is_tested_with_its_own_tools() -> None:
    assert set(NAMES) == set(EDITS) == set(TOOLS) == set(AGENTS)
    files = {path.stem for path in (ROOT / "agents").glob("*.toml")}
    assert files - set(AGENTS) == {"command", "scripted"}, "these work without a model"


def test_a_description_that_is_wrong_is_named(tmp_path: Path) -> None:
    right = (ROOT / "agents/codex.toml").read_text()
    (tmp_path / "codex.toml").write_text(right.replace("program", "progam"))
    with pytest.raises(ConfigurationError, match=r"codex\.toml(.|\n)*program"):
        load_agents(tmp_path)
    (tmp_path / "codex.toml").rename(tmp_path / "other.toml")
    (tmp_path / "other.toml").write_text(right)
    with pytest.raises(ConfigurationError, match=r"must be codex\.toml"):
        load_agents(tmp_path)
