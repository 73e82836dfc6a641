"""The tool that runs a command to its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from tools import processes
from tools.texts import plain
from tools.workspace import Workspace, telling

MOST_TIMEOUT_S = 3600
CommandLine = Annotated[str, Field(description="For bash.", min_length=1, max_length=100_000, pattern=r"^[^\x00]+$")]
Directory = Annotated[str | None, Field(description="Where to run it; the home directory if left out.")]


class Commands:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def tools(self) -> Sequence[Any]:
        return (self.run_command,)

    async def run_command(
        self,
        command: CommandLine,
        cwd: Directory = None,
        timeout: Annotated[float, Field(gt=0, le=MOST_TIMEOUT_S, description="Seconds until it is ended.")] = 120.0,
    ) -> dict[str, Any]:
        """Run a command and wait for its end. For servers and whatever needs answers, use shell_start."""
        where = self._workspace.directory(cwd)
        with telling("run a command in", where):
            ended = await processes.run(
                ["/bin/bash", "-l", "-c", command], cwd=where, env=self._workspace.environment(), timeout_s=timeout
            )
        shown = {"exit_code": ended.exit_code, "stdout": plain(ended.stdout), "stderr": plain(ended.stderr)}
        return {**shown, "timed_out": True} if ended.exit_code is None else shown
