"""Agents from npm and Python environments of examples, installed once and kept in the machine's cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.agents.clis import bare_environment

CLAUDE = "2.1.197"  # the native program alone: no Node, no scripts at installation


def claude() -> Path:
    """Claude Code's program for this machine."""
    machine = {"x86_64": "x64", "aarch64": "arm64"}[os.uname().machine]
    package = f"@anthropic-ai/claude-code-linux-{machine}"

    def install(draft: Path) -> None:
        argv = [
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--prefix",
            str(draft),
            f"{package}@{CLAUDE}",
        ]
        _run(argv)

    return kept(f"claude-code-{CLAUDE}", install) / "node_modules" / package / "claude"


def python_with(lock: Path) -> Path:
    """The Python of an environment that has exactly what the lock file says."""
    digest = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:12]

    def install(home: Path) -> None:
        _run([sys.executable, "-m", "venv", str(home)])
        _install(home / "bin" / "python", lock)

    return kept(f"example-{lock.parent.name}-{digest}", install) / "bin" / "python"


def kept(name: str, install: Callable[[Path], None]) -> Path:
    """A directory that is either complete or not there; runs at the same time make it once."""
    cache = Path(os.environ.get("SANDLOT_CACHE_DIR") or "/var/cache/sandlot") / "tests"
    cache.mkdir(parents=True, exist_ok=True)
    home = cache / name
    with (cache / f".{name}.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir()
            install(home)
            (home / "complete").touch()
    return home


def _install(python: Path, lock: Path) -> None:
    """With uv, which takes seconds; with pip where uv finds no index, because only pip reads pip's settings."""
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "-q", "--python", str(python)]
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    exact = ["--require-hashes", "-r", str(lock)]
    environment = {**bare_environment(), "UV_SYSTEM_CERTS": "1"}
    if subprocess.run([*uv, *exact], env=environment, capture_output=True).returncode != 0:
        _run([*pip, *exact])


def _run(argv: list[str]) -> None:
    done = subprocess.run(argv, env=bare_environment(), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{argv}: {done.stdout}\n{done.stderr}"
