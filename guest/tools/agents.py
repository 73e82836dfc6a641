"""The coding agents that are installed, each as a tool: a prompt goes in, what it did comes out."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fastmcp.exceptions import ToolError
from fastmcp.server.providers import Provider
from fastmcp.tools import Tool
from pydantic import Field

from tools import processes
from tools.texts import cut, plain
from tools.workspace import Workspace, telling

MODEL = "{model}"  # where the model's flag goes among the arguments
MOST_TIMEOUT_S = 7200
MOST_PROMPT = 1 << 20
MOST_OUTPUT = 4 << 20  # characters; an answer in JSON is of use only as a whole


@dataclass(frozen=True, slots=True)
class Agent:
    """How to start one without questions, with the prompt on its standard input; from its description in `agents/`."""

    tool: str
    program: str
    title: str
    arguments: tuple[str, ...]
    model_flag: str
    read: Callable[[str], dict[str, Any]]

    def command(self, program: str, model: str | None) -> list[str]:
        flags = [self.model_flag, model] if model is not None else []
        return [program, *(word for one in self.arguments for word in (flags if one == MODEL else [one]))]


def _text(output: str) -> dict[str, Any]:
    return {"result": cut(plain(output).strip())}


def _claude(output: str) -> dict[str, Any]:
    try:
        told = json.loads(output)
        known = {"session_id": told["session_id"], "turns": told["num_turns"], "cost_usd": told.get("total_cost_usd")}
        return {"result": cut(str(told.get("result", ""))), "is_error": bool(told.get("is_error")), **known}
    except (ValueError, KeyError, TypeError):
        return _text(output)


def _gemini(output: str) -> dict[str, Any]:
    try:
        return {"result": cut(str(json.loads(output)["response"]))}
    except (ValueError, KeyError, TypeError):
        return _text(output)


READERS = {"text": _text, "claude-json": _claude, "gemini-json": _gemini}


def descriptions() -> Path:
    """Beside the tools in a template; at the top of the repository in a checkout."""
    installed = Path(__file__).resolve().parents[1] / "agents"
    return installed if installed.is_dir() else Path(__file__).resolve().parents[2] / "agents"


def load(directory: Path) -> tuple[tuple[Agent, ...], dict[str, str]]:
    """The agents, and the variables that they want: the sandbox is the boundary, so each may do what it likes in it."""
    agents, environment = [], {"TERM": "dumb"}
    for path in sorted(directory.glob("*.toml")):
        told = tomllib.loads(path.read_text())
        if "tool" not in told:
            continue
        arguments, read = tuple(told["answer"]["arguments"]), READERS[told["answer"]["output"]]
        agents.append(Agent(told["tool"], told["program"], told["title"], arguments, told["model"]["flag"], read))
        environment.update(told.get("environment", {}))
    return tuple(agents), environment


class Agents(Provider):
    """Looks again at every list: an agent that is installed later is a tool from then on."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__()
        self._workspace = workspace
        agents, self._surroundings = load(descriptions())
        self._tools = {agent: self._tool(agent) for agent in agents}

    async def _list_tools(self) -> Sequence[Tool]:
        path = self._workspace.environment().get("PATH")
        return [tool for agent, tool in self._tools.items() if shutil.which(agent.program, path=path)]

    def _tool(self, agent: Agent) -> Tool:
        async def ask(
            prompt: Annotated[str, Field(min_length=1, max_length=MOST_PROMPT)],
            cwd: Annotated[str | None, Field(description="Where it works; the home directory if left out.")] = None,
            model: Annotated[
                str | None, Field(description="Another model than its own choice.", max_length=200)
            ] = None,
            timeout: Annotated[float, Field(gt=0, le=MOST_TIMEOUT_S, description="Seconds until it is ended.")] = 1800,
        ) -> dict[str, Any]:
            return await self._ask(agent, prompt, cwd, model, timeout)

        about = f"Give a task to {agent.title} in this sandbox, and wait for what it has to say."
        return Tool.from_function(ask, name=agent.tool, description=about)

    async def _ask(
        self, agent: Agent, prompt: str, cwd: str | None, model: str | None, timeout: float
    ) -> dict[str, Any]:
        where = self._workspace.directory(cwd)
        env = {**self._workspace.environment(), **self._surroundings}
        program = shutil.which(agent.program, path=env.get("PATH"))
        if program is None:
            raise ToolError(f"{agent.title} is not installed in this sandbox")
        if model is not None and (not model or model.startswith("-")):
            raise ToolError(f"{model!r} is not the name of a model")
        command = agent.command(program, model)
        with telling(f"start {agent.title} in", where):
            ended = await processes.run(
                command, cwd=where, env=env, timeout_s=timeout, stdin=prompt.encode(), most=MOST_OUTPUT
            )
        answer = {**agent.read(ended.stdout), "exit_code": ended.exit_code}
        if ended.exit_code is None:
            return {**answer, "timed_out": True}
        return answer if ended.exit_code == 0 else {**answer, "stderr": cut(plain(ended.stderr), 8000)}
