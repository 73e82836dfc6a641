"""What builds need from a host: running steps, finding images, keeping uploads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from sandlot.engine.core.model import AmazonLogin, Image, LayerResult, NetworkPolicy, RegistryLogin, StepRun, Template

Output = Callable[[str, str], None]  # a line, and its level: "info" for stdout, "warn" for stderr


class BuildRunner(Protocol):
    """Where steps of builds are carried out on a host, and where their results are kept as layers."""

    def cached_step(self, key: str) -> LayerResult | None:
        """The result of an earlier step with this key, if its layer still exists."""

    def cache_step(self, key: str, result: LayerResult) -> None: ...

    async def edit_files(
        self, layers: Sequence[str], acts: Sequence[Mapping[str, object]], disk_mb: int
    ) -> LayerResult:
        """Change files over these layers without running anything of the image. Raises `StepFailed`.

        The message of the error begins with the number of the act that failed, counted from 0, and a colon.
        """

    async def join(self, layers: Sequence[str]) -> LayerResult:
        """One layer with what all of these together show."""

    async def run(self, machine_id: str, step: StepRun, output: Output) -> LayerResult:
        """Run a command in a machine of its own and keep what it changed. Raises `StepFailed`."""

    async def finish(
        self,
        machine_id: str,
        template: Template,
        runtime: str,
        network: NetworkPolicy,
        checkpoint: str,
        output: Output,
        *,
        ready_s: float,
    ) -> str | None:
        """Run start and ready command as a sandbox would; the name of the saved state, where the runtime keeps memory.

        Raises `StepFailed`.
        """


class Images(Protocol):
    """Where images come from by name."""

    async def find(self, ref: str, login: RegistryLogin | AmazonLogin | None, output: Output) -> Image:
        """Raises `StepFailed` if there is none, saying where it was looked for."""


class Uploads(Protocol):
    """Archives that callers sent ahead of a build, by team and by the caller's own hash."""

    def has(self, team_id: str, files_hash: str) -> bool: ...

    def digest(self, team_id: str, files_hash: str) -> str:
        """What the archive really holds, by content. Raises `NotFound`."""

    def path(self, team_id: str, files_hash: str) -> Path: ...

    async def receive(self, team_id: str, files_hash: str, chunks: AsyncIterator[bytes]) -> None:
        """Keep an archive, whole or not at all. Raises `InvalidRequest` if it is too large."""
