"""How each agent's command line is pointed at a model of ours, run without a person, and what its tools are called."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.models.script import Script, script

# Nothing that an agent finds in the environment of whoever runs the tests may lead it to a real model.
HIDDEN = (
    "ANTHROPIC_", "CLAUDE", "OPENAI_", "CODEX_", "GEMINI_", "GOOGLE_", "OPENCODE_", "AWS_", "AZURE_", "E2B_", "SANDLOT_", "XDG_",
)  # fmt: skip
QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
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
NAMES = ("claude", "codex", "gemini", "opencode")


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
    made = AGENTS[name](model, path, prompt, tools)
    return Cli(made.name, made.argv, made.edit, {**QUIET, **PATIENT, **made.environment}, made.files)


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


def _claude(model: str, path: str, prompt: str, tools: McpServer | None) -> Cli:
    servers = {"tools": {"type": "http", "url": tools.url, "headers": tools.headers}} if tools else {}
    mcp = json.dumps({"mcpServers": servers})
    change = {"file_path": path, "old_string": "nobody", "new_string": "the agent"}
    return Cli(
        name="claude",
        argv=(
            "claude", "-p", prompt, "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions",
            "--mcp-config", mcp, "--strict-mcp-config",
        ),
        environment={"ANTHROPIC_BASE_URL": model, "ANTHROPIC_API_KEY": "sk-scripted"},
        edit=_edit(
            {"tool": "Read", "input": {"file_path": path}},
            {"tool": "Edit", "input": change},
            {"tool": "Bash", "input": {"command": f"cat {path}", "description": "Show it"}},
        ),
    )  # fmt: skip


CODEX = """model = "scripted"
model_provider = "scripted"
check_for_update_on_startup = false

[model_providers.scripted]
name = "scripted"
base_url = "{model}/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"

[analytics]
enabled = false
"""
CODEX_TOOLS = """
[mcp_servers.tools]
url = "{url}"
bearer_token_env_var = "TOOLS_TOKEN"
startup_timeout_sec = 90
"""


def _codex(model: str, path: str, prompt: str, tools: McpServer | None) -> Cli:
    settings = CODEX.format(model=model) + (CODEX_TOOLS.format(url=tools.url) if tools else "")
    return Cli(
        name="codex",
        argv=(
            "codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", prompt,
        ),
        environment={"SCRIPTED_KEY": "sk-scripted", "TOOLS_TOKEN": tools.token if tools else ""},
        files={".codex/config.toml": settings},
        edit=_edit(
            {"tool": "exec_command", "input": {"cmd": f"cat {path}"}},
            {"tool": "exec_command", "input": {"cmd": f"sed -i 's/nobody/the agent/' {path}"}},
            {"tool": "exec_command", "input": {"cmd": f"cat {path}"}},
        ),
    )  # fmt: skip


def _gemini(model: str, path: str, prompt: str, tools: McpServer | None) -> Cli:
    servers = {"tools": {"httpUrl": tools.url, "headers": tools.headers, "trust": True}} if tools else {}
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False},
        "mcpServers": servers,
    }
    change = {"file_path": path, "instruction": "Greet", "old_string": "nobody", "new_string": "the agent"}
    return Cli(
        name="gemini",
        argv=("gemini", "-p", prompt, "--yolo", "--output-format", "stream-json"),
        environment={"GOOGLE_GEMINI_BASE_URL": model, "GEMINI_API_KEY": "scripted"},
        files={".gemini/settings.json": json.dumps(settings)},
        edit=_edit(
            {"tool": "read_file", "input": {"file_path": path}},
            {"tool": "replace", "input": change},
            {"tool": "run_shell_command", "input": {"command": f"cat {path}"}},
        ),
    )


def _opencode(model: str, path: str, prompt: str, tools: McpServer | None) -> Cli:
    servers = {"tools": {"type": "remote", "url": tools.url, "headers": tools.headers}} if tools else {}
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "model": "scripted/scripted",
        "permission": {"edit": "allow", "bash": "allow"},
        "mcp": servers,
        "provider": {
            "scripted": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": f"{model}/v1", "apiKey": "sk-scripted"},
                "models": {"scripted": {"name": "scripted"}},
            }
        },
    }
    return Cli(
        name="opencode",
        argv=("opencode", "run", "--format", "json", prompt),
        files={".config/opencode/opencode.json": json.dumps(settings)},
        edit=_edit(
            {"tool": "read", "input": {"filePath": path}},
            {"tool": "edit", "input": {"filePath": path, "oldString": "nobody", "newString": "the agent"}},
            # Its shell tool now and then loses what a very short command wrote; reading does not.
            {"tool": "read", "input": {"filePath": path}},
        ),
    )


AGENTS: Mapping[str, Callable[[str, str, str, McpServer | None], Cli]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "opencode": _opencode,
}
