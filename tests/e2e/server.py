"""A real Sandlot server for tests: its own data directory and port, started and ended through the CLI."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from e2b import Sandbox
from tests.ports import free_port as free_port

HIDDEN = ("E2B_", "ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_", "SANDLOT_")


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(HIDDEN)}


def until(true: Callable[[], bool], seconds: float = 60, what: str = "the condition") -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"{what} did not come true within {seconds} s"
        time.sleep(0.05)


@dataclass
class Server:
    """Use as a context manager; `env` is what `./sandlot env` tells clients to use."""

    data_dir: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)

    def cli(
        self, *arguments: str, check: bool = True, timeout: float = 300, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "sandlot", *arguments],
            env=self.cli_environment(),
            text=True,
            capture_output=True,
            timeout=timeout,
            **options,
        )
        assert not check or done.returncode == 0, (
            f"{shlex.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done

    def cli_environment(self) -> dict[str, str]:
        return {
            **clean_environment(),
            "SANDLOT_PREPARE_TEMPLATES": "none",
            **self.settings,
            "SANDLOT_DATA_DIR": str(self.data_dir),
            "SANDLOT_PORT": str(self.port),
        }

    def up(self) -> None:
        self.cli("up", "--detach", *self.options)

    def down(self, *options: str) -> None:
        self.cli("down", *options, check=False)
        errors = self.asyncio_errors()
        assert not errors, "asyncio logged errors in the server:\n" + "\n".join(errors)

    def asyncio_errors(self) -> list[str]:
        """What nobody in the server looked at: errors of tasks and callbacks."""
        path = self.data_dir / "logs" / "server.log"
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return [line for line in lines if '"logger": "asyncio"' in line and '"level": "error"' in line]

    @property
    def pid(self) -> int:
        pid = int(json.loads((self.data_dir / "server.json").read_text())["pid"])
        assert pid > 1
        return pid

    def kill_9(self) -> None:
        pidfd = os.pidfd_open(self.pid)
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        until(lambda: not _alive(self.pid), what="the server's end")
        os.close(pidfd)

    @property
    def env(self) -> dict[str, str]:
        variables: dict[str, str] = json.loads(self.cli("env", "--json").stdout)
        return variables

    @property
    def url(self) -> str:
        return self.env["E2B_API_URL"]

    @property
    def key(self) -> str:
        return (self.data_dir / "keys" / "default").read_text().strip()

    @property
    def sdk(self) -> dict[str, Any]:
        """What the SDK takes as options instead of the environment."""
        address = f"http://127.0.0.1:{self.port}"
        return {"api_key": self.key, "api_url": address, "sandbox_url": address, "domain": f"localhost:{self.port}"}

    def create(self, template: str | None = None, *, timeout: int = 600, **options: Any) -> Sandbox:
        return Sandbox.create(template, timeout=timeout, **{**self.sdk, **options})

    def http(self) -> httpx.Client:
        address = f"http://127.0.0.1:{self.port}"
        return httpx.Client(base_url=address, headers={"X-API-KEY": self.key}, timeout=60, trust_env=False)

    def running(self) -> list[str]:
        """Ids of the sandboxes that the server lists."""
        with self.http() as client:
            return [row["sandboxID"] for row in client.get("/v2/sandboxes?state=running,paused").json()]

    def machine_id(self, sandbox_id: str) -> str:
        """What the sandbox's machine is called on the host: a leased one has a name of its own."""
        path = self.data_dir / "sandboxes" / sandbox_id
        return path.readlink().name if path.is_symlink() else sandbox_id

    def warm(self) -> set[str]:
        """Machines of the warm pool."""
        paths = list((self.data_dir / "sandboxes").iterdir())
        leased = {path.readlink().name for path in paths if path.is_symlink()}
        return {path.name for path in paths if not path.is_symlink() and path.name.startswith("m")} - leased

    @property
    def log(self) -> str:
        return (self.data_dir / "logs" / "server.log").read_text(errors="replace")

    def __enter__(self) -> Server:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False
