"""How each agent's command line is pointed at a model of ours, run without a person, and what its tools are called."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
}
FILE = "greeting.txt"
BEFORE, AFTER = "hello from nobody\n", "hello from the agent\n"
PROMPT = f"Greet in the name of the agent: change {FILE}, then show it."


@dataclass(frozen=True)
class Cli:
    """`files` are relative to the home directory; `{url}` in them and in `environment` is the model's address."""

    name: str
    package: str
    argv: Sequence[str]
    edit: Script
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    def command(self, prompt: str) -> list[str]:
        return [prompt if part == "{prompt}" else part for part in self.argv]

    def environment_for(self, url: str) -> dict[str, str]:
        return {**QUIET, **{name: text.replace("{url}", url) for name, text in self.environment.items()}}

    def files_for(self, url: str) -> dict[str, str]:
        return {path: text.replace("{url}", url) for path, text in self.files.items()}


def bare_environment() -> dict[str, str]:
    """That of the tests without everything that concerns models."""
    return {name: value for name, value in os.environ.items() if not name.startswith(HIDDEN)}


def editing(workspace: str = "/home/user/work") -> dict[str, Cli]:
    path = f"{workspace}/{FILE}"
    done = {"expect": "hello from the agent", "say": "It greets in my name now."}
    claude = Cli(
        name="claude",
        package="@anthropic-ai/claude-code",
        argv=(
            "claude", "-p", "{prompt}", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions",
        ),
        environment={"ANTHROPIC_BASE_URL": "{url}", "ANTHROPIC_API_KEY": "sk-scripted", "IS_SANDBOX": "1"},
        edit=script(
            {"say": "I read it first.", "calls": [{"tool": "Read", "input": {"file_path": path}}]},
            {
                "expect": "hello from nobody",
                "calls": [{"tool": "Edit", "input": {"file_path": path, "old_string": "nobody", "new_string": "the agent"}}],
            },
            {"calls": [{"tool": "Bash", "input": {"command": f"cat {path}", "description": "Show it"}}]},
            done,
        ),
    )  # fmt: skip
    codex = Cli(
        name="codex",
        package="@openai/codex",
        argv=(
            "codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "{prompt}",
        ),
        environment={"SCRIPTED_KEY": "sk-scripted"},
        files={
            ".codex/config.toml": """model = "scripted"
model_provider = "scripted"
check_for_update_on_startup = false

[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"

[analytics]
enabled = false
"""
        },
        edit=script(
            {"say": "I read it first.", "calls": [{"tool": "exec_command", "input": {"cmd": f"cat {path}"}}]},
            {
                "expect": "hello from nobody",
                "calls": [{"tool": "exec_command", "input": {"cmd": f"sed -i 's/nobody/the agent/' {path} && cat {path}"}}],
            },
            done,
        ),
    )  # fmt: skip
    gemini = Cli(
        name="gemini",
        package="@google/gemini-cli",
        argv=("gemini", "-p", "{prompt}", "--yolo", "--output-format", "stream-json"),
        environment={
            "GOOGLE_GEMINI_BASE_URL": "{url}",
            "GEMINI_API_KEY": "scripted",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        },
        files={
            ".gemini/settings.json": json.dumps(
                {
                    "security": {"auth": {"selectedType": "gemini-api-key"}},
                    "privacy": {"usageStatisticsEnabled": False},
                    "telemetry": {"enabled": False},
                    "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
                }
            )
        },
        edit=script(
            {"say": "I read it first.", "calls": [{"tool": "read_file", "input": {"file_path": path}}]},
            {
                "expect": "hello from nobody",
                "calls": [
                    {
                        "tool": "replace",
                        "input": {
                            "file_path": path,
                            "instruction": "Greet in the name of the agent",
                            "old_string": "nobody",
                            "new_string": "the agent",
                        },
                    }
                ],
            },
            {"calls": [{"tool": "run_shell_command", "input": {"command": f"cat {path}"}}]},
            done,
        ),
    )
    opencode = Cli(
        name="opencode",
        package="opencode-ai",
        argv=("opencode", "run", "--format", "json", "--model", "scripted/scripted", "{prompt}"),
        files={
            ".config/opencode/opencode.json": json.dumps(
                {
                    "autoupdate": False,
                    "share": "disabled",
                    "permission": {"edit": "allow", "bash": "allow"},
                    "provider": {
                        "scripted": {
                            "npm": "@ai-sdk/openai-compatible",
                            "options": {"baseURL": "{url}/v1", "apiKey": "sk-scripted"},
                            "models": {"scripted": {"name": "scripted"}},
                        }
                    },
                }
            )
        },
        edit=script(
            {"say": "I read it first.", "calls": [{"tool": "read", "input": {"filePath": path}}]},
            {
                "expect": "hello from nobody",
                "calls": [
                    {"tool": "edit", "input": {"filePath": path, "oldString": "nobody", "newString": "the agent"}}
                ],
            },
            # Its shell tool now and then loses what a very short command wrote; reading does not.
            {"calls": [{"tool": "read", "input": {"filePath": path}}]},
            done,
        ),
    )
    return {cli.name: cli for cli in (claude, codex, gemini, opencode)}
