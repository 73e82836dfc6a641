"""The contestants of the benchmark: one small interface over a Sandlot server (through the E2B SDK) and over Docker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from e2b import Sandbox

from bench.dockerd import Docker

TEMPLATE = "base"
BOX_TIMEOUT_S = 600
_FILE = "/tmp/bench-file"


class Box(Protocol):
    """Something isolated that runs commands and holds files."""

    @property
    def id(self) -> str:
        """The name of its control group."""

    def run_true(self) -> None:
        """Run the shortest command there is and wait for its end."""

    def write(self, source: Path) -> None:
        """Put a file of the host into the box."""

    def read(self, target: Path) -> None:
        """Bring what was written last back to the host."""

    def kill(self) -> None: ...


class Contestant(Protocol):
    @property
    def name(self) -> str: ...

    def create(self) -> Box:
        """A new box, ready for commands."""


@dataclass(frozen=True, slots=True)
class SandlotContestant:
    """Sandboxes of one server, used as a user does: the official SDK, unchanged."""

    name: str
    environment: Mapping[str, str]  # what `./sandlot env` says
    data_dir: Path

    def create(self) -> Box:
        return SandlotBox(
            self.data_dir,
            Sandbox.create(
                TEMPLATE,
                timeout=BOX_TIMEOUT_S,
                api_key=self.environment["E2B_API_KEY"],
                api_url=self.environment["E2B_API_URL"],
                sandbox_url=self.environment["E2B_SANDBOX_URL"],
                domain=self.environment["E2B_DOMAIN"],
            ),
        )


@dataclass(frozen=True, slots=True)
class SandlotBox:
    data_dir: Path
    sandbox: Sandbox

    @property
    def id(self) -> str:
        """A machine that was leased from the warm pool has a name of its own."""
        link = self.data_dir / "sandboxes" / self.sandbox.sandbox_id
        return link.readlink().name if link.is_symlink() else self.sandbox.sandbox_id

    def run_true(self) -> None:
        self.sandbox.commands.run("true")

    def write(self, source: Path) -> None:
        self.sandbox.files.write(_FILE, source.read_bytes())

    def read(self, target: Path) -> None:
        target.write_bytes(self.sandbox.files.read(_FILE, format="bytes"))

    def kill(self) -> None:
        self.sandbox.kill()


@dataclass(frozen=True, slots=True)
class DockerContestant:
    """Containers of one daemon, used as a user does: its command-line client."""

    name: str
    docker: Docker
    image: str
    network: str

    def create(self) -> Box:
        identity = self.docker.run("run", "--detach", "--network", self.network, self.image, "sleep", "infinity")
        return DockerBox(docker=self.docker, id=identity.strip())

    def run_once(self) -> None:
        """`docker run IMAGE true`: no box to use afterwards, hence the least Docker can need for a first command."""
        self.docker.run("run", "--network", self.network, self.image, "true")

    def tidy(self) -> None:
        """Remove ended containers, which `run_once` leaves: removing is no part of what it measures."""
        self.docker.run("container", "prune", "--force")


@dataclass(frozen=True, slots=True)
class DockerBox:
    docker: Docker
    id: str

    def run_true(self) -> None:
        self.docker.run("exec", self.id, "true")

    def write(self, source: Path) -> None:
        self.docker.run("cp", str(source), f"{self.id}:{_FILE}")

    def read(self, target: Path) -> None:
        self.docker.run("cp", f"{self.id}:{_FILE}", str(target))

    def kill(self) -> None:
        self.docker.run("rm", "--force", self.id)
