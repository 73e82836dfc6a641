"""A Sandlot server for the length of a measurement: started, asked for its address and stopped through the CLI."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LAUNCHER = Path(__file__).resolve().parents[1] / "sandlot"
UP_TIMEOUT_S = 1800  # a first start builds the base template


class ServerUnavailable(Exception):
    """The server could not be started; the message holds what it said."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server, also seen from outside."""

    environment: dict[str, str]  # what `./sandlot env` tells clients
    data_dir: Path

    @property
    def pid(self) -> int:
        return int(json.loads((self.data_dir / "server.json").read_text())["pid"])

    def resident_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise ServerUnavailable("the server ended while it was measured")

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def number(self, metric: str) -> float | None:
        """What the server itself says: the sum of one of its numbers over all labels; None if it has no such number."""
        address = self.environment["E2B_API_URL"] + "/metrics"
        with urllib.request.urlopen(address, timeout=30) as reply:
            lines = reply.read().decode().splitlines()
        found = [float(line.split()[-1]) for line in lines if line.split("{")[0].split(" ")[0] == metric]
        return sum(found) if found else None


@contextlib.contextmanager
def running(runtime: str, **settings: str) -> Iterator[dict[str, str]]:
    """Start a server of its own with this runtime and yield what `./sandlot env` tells clients."""
    with observed(runtime, **settings) as server:
        yield server.environment


@contextlib.contextmanager
def observed(runtime: str, **settings: str) -> Iterator[Server]:
    """The same, for those who want to look at the server, too."""
    data_dir = Path(tempfile.mkdtemp(prefix="sandlot-bench-", dir="/var/tmp"))
    environment = _environment(runtime, data_dir) | {f"SANDLOT_{name.upper()}": text for name, text in settings.items()}
    try:
        _sandlot(environment, "up", "--detach")
        try:
            yield Server(json.loads(_sandlot(environment, "env", "--json")), data_dir)
        finally:
            _sandlot(environment, "down")
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)


def _environment(runtime: str, data_dir: Path) -> dict[str, str]:
    # Settings of the caller's own instance must not reach this one; where shared things are kept may.
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SANDLOT_", "E2B_")) or name in ("SANDLOT_CACHE_DIR", "SANDLOT_VENV")
    }
    return kept | {
        "SANDLOT_RUNTIME": runtime,
        "SANDLOT_DATA_DIR": str(data_dir),
        "SANDLOT_PORT": str(_free_port()),
        "SANDLOT_PREPARE_TEMPLATES": "none",  # a build in the background would be measured, too
    }


def _sandlot(environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [str(LAUNCHER), *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=UP_TIMEOUT_S,
    )
    if done.returncode != 0:
        raise ServerUnavailable(f"./sandlot {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
