"""Agents run without a person: in a sandbox through the SDK, and on the host against tools elsewhere."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2b import CommandResult, Sandbox
from tests.agents.clis import PATIENT, QUIET, Cli, bare_environment
from tests.models.server import ScriptedModel

WITHIN_S = 200  # an agent ends in seconds; under load it may take much longer
NOWHERE = "http://127.0.0.1:1"  # a proxy where nobody listens: what is not on this machine cannot be reached


def run_inside(sandbox: Sandbox, cli: Cli, workspace: str) -> CommandResult:
    """The agent's own command line in the sandbox; it ends with 0 or this raises."""
    for path, text in cli.files.items():
        sandbox.files.write(f"/home/user/{path}", text)
    command = f"timeout {WITHIN_S} {shlex.join(cli.argv)} </dev/null"
    return sandbox.commands.run(command, cwd=workspace, envs=dict(cli.environment), timeout=WITHIN_S + 30)


def tools_token(sandbox: Sandbox) -> str:
    """A token for the tools inside, once they answer: without a saved state they start when the sandbox does."""
    up = "curl -fsS -o /dev/null --retry 60 --retry-delay 1 --retry-connrefused http://127.0.0.1:6060/health"
    return sandbox.commands.run(f"{up} && sandlot-tools token", timeout=120).stdout.strip()


@dataclass(frozen=True)
class Report:
    """What Claude Code tells in its stream of JSON."""

    events: Sequence[Mapping[str, Any]]

    @property
    def servers(self) -> dict[str, str]:
        """The state of each MCP server that it was given."""
        return {server["name"]: server["status"] for server in self._first("system")["mcp_servers"]}

    @property
    def tools(self) -> set[str]:
        return set(self._first("system")["tools"])

    @property
    def result(self) -> str:
        return str(self._first("result")["result"])

    def _first(self, kind: str) -> Mapping[str, Any]:
        return next(event for event in self.events if event["type"] == kind)


@dataclass(frozen=True)
class Laptop:
    """A home directory with Claude Code and nothing else: no key but the scripted one, no way out of the machine."""

    claude: Path
    home: Path

    def run(self, model: ScriptedModel, prompt: str, servers: Mapping[str, Any]) -> Report:
        """One prompt with these MCP servers, and no tool that touches the host."""
        configuration = self.home / "mcp.json"
        configuration.write_text(json.dumps({"mcpServers": servers}))
        argv = [
            str(self.claude), "-p", prompt, "--output-format", "stream-json", "--verbose",
            "--mcp-config", str(configuration), "--strict-mcp-config",
            "--tools", "", "--allowedTools", *[f"mcp__{name}" for name in servers],
        ]  # fmt: skip
        done = subprocess.run(
            argv, cwd=self.home, env=self.environment(model), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=WITHIN_S,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{model.problems}"
        return Report([json.loads(line) for line in done.stdout.splitlines()])

    def environment(self, model: ScriptedModel) -> dict[str, str]:
        proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), NOWHERE)
        here = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
        pointed = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-scripted"}
        return {**bare_environment(), **QUIET, **PATIENT, **proxies, **here, **pointed, "HOME": str(self.home)}
