"""Descriptions of coding agents: how each is started without a person, and pointed at a model. Read from `agents/*.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sandlot.data_files import data_files
from sandlot.platform.core.errors import ConfigurationError
from sandlot.platform.core.models import ModelApi

PROMPT, MODEL = "{prompt}", "{model}"
Output = Literal[
    "text",
    "claude-json",
    "gemini-json",
    "claude-stream",
    "codex-stream",
    "gemini-stream",
    "opencode-stream",
    "copilot-stream",
]
AgentId = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AgentInstall(_Table):
    manager: Literal["npm"]
    package: str
    build_argument: str  # of the template: 0 leaves the agent out


class AgentModel(_Table):
    flag: str
    form: str | None = None  # of a model's name, if it has one
    default: str | None = None  # where it must be told one and nobody said which


class AgentMode(_Table):
    """One way of starting it. `output` names the format of what it prints."""

    arguments: tuple[str, ...]
    output: Output


class AgentEndpoint(_Table):
    """How it is pointed at a model at another address, in the protocol `api`. `files` are below the home directory."""

    api: ModelApi | None = None
    environment: Mapping[str, str] = {}
    files: Mapping[str, str] = {}


class PointedAgent(_Table):
    """What one agent needs to use one model: variables, and files below the home directory."""

    environment: Annotated[Mapping[str, str], Field(repr=False)]
    files: Annotated[Mapping[str, str], Field(repr=False)]


class AgentTask(_Table):
    """How it works on a task. The prompt is on its standard input, and wherever `{prompt}` stands among the arguments."""

    start: tuple[str, ...]
    resume: tuple[str, ...] | None = None  # with `{session}`; None: every turn begins anew
    output: Output
    interrupt: tuple[Literal["INT", "TERM", "KILL"], ...] = ("INT", "TERM", "KILL")
    grace_s: Annotated[int, Field(gt=0, le=60)] = 5  # between two of these signals
    template: str = "agent"
    env: tuple[str, ...] = ()  # variables that it needs; one of them is enough
    environment: Mapping[str, str] = {}  # what it is told in a task
    carries: str | None = None  # a program of ours, below `guest/`, that goes into the sandbox with each turn


class AgentDescription(_Table):
    id: AgentId
    title: str
    program: str
    tool: str | None = None  # the name of its MCP tool in a sandbox
    install: AgentInstall | None = None  # None: nothing to install
    model: AgentModel | None = None  # None: it has no choice of models
    answer: AgentMode | None = None  # one answer at the end; the prompt on standard input
    stream: AgentMode | None = None  # events while it works; the prompt as an argument
    task: AgentTask | None = None
    environment: Mapping[str, str] = {}  # what it wants to know in a sandbox
    offline: Mapping[str, str] = {}  # what keeps it to the model's address
    endpoint: AgentEndpoint = AgentEndpoint()

    def answer_command(self, model: str | None = None) -> tuple[str, ...]:
        """Takes the prompt on its standard input."""
        return self._command(self.answer, "", model)

    def stream_command(self, prompt: str, model: str | None = None) -> tuple[str, ...]:
        return self._command(self.stream, prompt, model)

    def pointed_at(self, url: str, *, key: str, model: str, provider: str) -> PointedAgent:
        """`url` is what stands before `/v1`; `provider` is our name for whoever serves the model there."""
        values = {"{url}": url, "{key}": key, "{model}": model, "{provider}": provider}
        environment = {name: _filled(text, values) for name, text in self.endpoint.environment.items()}
        files = {path: _filled(text, values) for path, text in self.endpoint.files.items()}
        return PointedAgent(environment=environment, files=files)

    @property
    def must_name_model(self) -> bool:
        """Whether it cannot be pointed anywhere without the name of a model."""
        texts = (*self.endpoint.environment.values(), *self.endpoint.files.values())
        return any(MODEL in text for text in texts)

    def model_flags(self, model: str | None) -> tuple[str, ...]:
        return (self.model.flag, model) if self.model is not None and model is not None else ()

    def _command(self, mode: AgentMode | None, prompt: str, model: str | None) -> tuple[str, ...]:
        if mode is None:
            raise ConfigurationError(
                f"the agent {self.id!r} cannot be started this way: its description does not say how"
            )
        flags = self.model_flags(model)
        parts = {PROMPT: (prompt,), MODEL: flags}
        return (self.program, *(word for argument in mode.arguments for word in parts.get(argument, (argument,))))


def load_agents(directory: Path | None = None) -> dict[str, AgentDescription]:
    """All of them by id. Raises `ConfigurationError`, naming the file that is wrong."""
    found: dict[str, AgentDescription] = {}
    for path in sorted((directory or data_files("agents")).glob("*.toml")):
        try:
            agent = AgentDescription.model_validate(tomllib.loads(path.read_text()))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValidationError) as error:
            raise ConfigurationError(f"the description of an agent in {path} is not valid: {error}") from error
        if agent.id != path.stem:
            raise ConfigurationError(f"{path} describes the agent {agent.id!r}; its file must be {agent.id}.toml")
        found[agent.id] = agent
    return found


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(name, value)
    return text
