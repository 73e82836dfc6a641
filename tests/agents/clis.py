"""Each agent as `agents/` describes it, pointed at a model of ours; and what only tests know: what its tools are called."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.models.script import Script, script

from sandlot.platform.agents.descriptions import load_agents

# Nothing that an agent finds in the environment of whoever runs the tests may lead it to a real model.
HIDDEN = (
    "ANTHROPIC_", "CLAUDE", "OPENAI_", "CODEX_", "GEMINI_", "GOOGLE_", "OPENCODE_", "COPILOT_", "GH_", "GITHUB_", "AWS_", "AZURE_", "E2B_", "SANDLOT_", "XDG_",
)  # fmt: skip
DESCRIBED = {
    name: agent for name, agent in load_agents().items() if agent.install is not None
}  # those that need a model
NAMES = tuple(DESCRIBED)
QUIET = {
    **{name: value for agent in DESCRIBED.values() for name, value in agent.offline.items()},
    "DO_NOT_TRACK": "1",
    "NO_PROXY": "*",
}
# Claude Code begins without the MCP servers that take more than some seconds to answer, unless it is told to wait.
PATIENT = {
    "MCP_CONNECTION_NONBLOCKING": "0",
    "MCP_CONNECT_TIMEOUT_MS": "90000",
    "MCP_TIMEOUT": "90000",
    "CLAUDE_CODE_MCP_STARTUP_WAIT_MS": "90000",
    "ENABLE_TOOL_SEARCH": "false",  # nor does it hide tools behind a search: a script cannot look for them
}
FILE = "greeting.txt"
BEFORE, AFTER = "hello from nobody\n", "hello from the agent\n"
PROMPT = f"Greet in the name of the agent: change {FILE}, then show it."
LAST_WORD = "It greets in my name now."
MODEL, KEY = "scripted", "sk-scripted"


@dataclass(frozen=True)
class McpServer:
    """Tools that an agent is given besides its own."""

    url: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


@dataclass(frozen=True)
class Cli:
    """`edit` changes the file with the agent's own tools. `files` are relative to the home directory."""

    name: str
    argv: Sequence[str]
    edit: Script
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


def bare_environment() -> dict[str, str]:
    """That of the tests without everything that concerns models."""
    return {name: value for name, value in os.environ.items() if not name.startswith(HIDDEN)}


def cli(name: str, model: str, path: str, *, prompt: str = PROMPT, tools: McpServer | None = None) -> Cli:
    """The agent with a model at this address, set up to change the file at this path."""
    agent = DESCRIBED[name]
    pointed = agent.pointed_at(model, key=KEY, model=MODEL, provider=MODEL)
    plan = Cli(name, agent.stream_command(prompt), EDITS[name](path), pointed.environment, pointed.files)
    made = TOOLS[name](plan, tools) if tools is not None or name == "claude" else plan
    return replace(made, environment={**QUIET, **PATIENT, **made.environment})


def edit_with_tools(path: str) -> Script:
    """The same change with a sandbox's tools, by one that no agent has itself."""
    change = {"path": path, "edits": [{"old": "nobody", "new": "the agent"}]}
    return script({"calls": [{"tool": "multi_edit_file", "input": change}]}, {"expect": FILE, "say": LAST_WORD})


def _edit(*turns: Mapping[str, Any]) -> Script:
    """Look, change, look again: each agent with the tools that it has for that."""
    first, change, check = turns
    return script(
        {"say": "I read it first.", "calls": [first]},
        {"expect": "hello from nobody", "calls": [change]},
        {"calls": [check]},
        {"expect": "hello from the agent", "say": LAST_WORD},
    )


EDITS: Mapping[str, Callable[[str], Script]] = {
    "claude": lambda path: _edit(
        {"tool": "Read", "input": {"file_path": path}},
        {"tool": "Edit", "input": {"file_path": path, "old_string": "nobody", "new_string": "the agent"}},
        {"tool": "Bash", "input": {"command": f"cat {path}", "description": "Show it"}},
    ),
    "codex": lambda path: _edit(
        {"tool": "exec_command", "input": {"cmd": f"cat {path}"}},
        {"tool": "exec_command", "input": {"cmd": f"sed -i 's/nobody/the agent/' {path}"}},
        {"tool": "exec_command", "input": {"cmd": f"cat {path}"}},
    ),
    "copilot": lambda path: _edit(
        {"tool": "view", "input": {"path": path}},
        {"tool": "edit", "input": {"path": path, "old_str": "nobody", "new_str": "the agent"}},
        {"tool": "bash", "input": {"command": f"cat {path}", "description": "Show it"}},
    ),
    "gemini": lambda path: _edit(
        {"tool": "read_file", "input": {"file_path": path}},
        {
            "tool": "replace",
            "input": {"file_path": path, "instruction": "Greet", "old_string": "nobody", "new_string": "the agent"},
        },
        {"tool": "run_shell_command", "input": {"command": f"cat {path}"}},
    ),
    "opencode": lambda path: _edit(
        {"tool": "read", "input": {"filePath": path}},
        {"tool": "edit", "input": {"filePath": path, "oldString": "nobody", "newString": "the agent"}},
        # Its shell tool now and then loses what a very short command wrote; reading does not.
        {"tool": "read", "input": {"filePath": path}},
    ),
}

CODEX_TOOLS = """
[mcp_servers.tools]
url = "{url}"
bearer_token_env_var = "TOOLS_TOKEN"
startup_timeout_sec = 90
"""


def _claude_tools(plan: Cli, tools: McpServer | None) -> Cli:
    servers = {"tools": {"type": "http", "url": tools.url, "headers": tools.headers}} if tools else {}
    mcp = json.dumps({"mcpServers": servers})
    return replace(plan, argv=(*plan.argv, "--mcp-config", mcp, "--strict-mcp-config"))


def _codex_tools(plan: Cli, tools: McpServer | None) -> Cli:
    assert tools is not None
    files = {path: text + CODEX_TOOLS.format(url=tools.url) for path, text in plan.files.items()}
    return replace(plan, files=files, environment={**plan.environment, "TOOLS_TOKEN": tools.token})


def _copilot_tools(plan: Cli, tools: McpServer | None) -> Cli:
    assert tools is not None
    server = {"type": "http", "url": tools.url, "headers": tools.headers, "tools": ["*"]}
    return replace(plan, argv=(*plan.argv, "--additional-mcp-config", json.dumps({"mcpServers": {"tools": server}})))


def _gemini_tools(plan: Cli, tools: McpServer | None) -> Cli:
    assert tools is not None
    return _with_setting(plan, "mcpServers", {"httpUrl": tools.url, "headers": tools.headers, "trust": True})


def _opencode_tools(plan: Cli, tools: McpServer | None) -> Cli:
    assert tools is not None
    return _with_setting(plan, "mcp", {"type": "remote", "url": tools.url, "headers": tools.headers})


def _with_setting(plan: Cli, name: str, server: Mapping[str, Any]) -> Cli:
    ((path, text),) = plan.files.items()
    return replace(plan, files={path: json.dumps({**json.loads(text), name: {"tools": server}})})


TOOLS: Mapping[str, Callable[[Cli, McpServer | None], Cli]] = {
    "claude": _claude_tools,
    "codex": _codex_tools,
    "copilot": _copilot_tools,
    "gemini": _gemini_tools,
    "opencode": _opencode_tools,
}
