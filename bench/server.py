"""A Sandlot server for the length of a measurement: started, asked for its address and stopped through the CLI."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

LAUNCHER = Path(__file__).resolve().parents[1] / "sandlot"
UP_TIMEOUT_S = 1800  # a first start builds the base template


class ServerUnavailable(Exception):
    """The server could not be started; the message holds what it said."""


@contextlib.contextmanager
def running(runtime: str, **settings: str) -> Iterator[dict[str, str]]:
    """Start a server of its own with this runtime and yield what `./sandlot env` tells clients."""
    data_dir = Path(tempfile.mkdtemp(prefix="sandlot-bench-", dir="/var/tmp"))
    environment = _environment(runtime, data_dir) | {f"SANDLOT_{name.upper()}": text for name, text in settings.items()}
    try:
        _sandlot(environment, "up", "--detach")
        try:
            yield json.loads(_sandlot(environment, "env", "--json"))
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
