"""The environments that tests of what runs in sandboxes run in: made once per lock file, kept in the machine's cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SERVER_LOCK = ROOT / "guest" / "interpreter" / "server.lock"
KERNEL_LOCK = Path(__file__).with_name("kernel.lock")


def python_with(*locks: Path, name: str = "interpreter") -> Path:
    """The Python of an environment that has exactly what the lock files say."""
    said = b"".join(lock.read_bytes() for lock in locks)
    digest = hashlib.sha256(said + sys.version.encode()).hexdigest()[:12]
    cache = Path(os.environ.get("SANDLOT_CACHE_DIR") or "/var/cache/sandlot") / "tests"
    cache.mkdir(parents=True, exist_ok=True)
    home = cache / f"{name}-{locks[0].stem}-{digest}"
    with (cache / f".{home.name}.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # runs at the same time make it once
        if not (home / "complete").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
            for lock in locks:
                _install(home / "bin" / "python", lock)
            (home / "complete").touch()
    return home / "bin" / "python"


def _install(python: Path, lock: Path) -> None:
    """With uv, which takes seconds; with pip where uv finds no index, because only pip reads pip's settings."""
    uv = [
        str(Path(sys.executable).with_name("uv")),
        "pip",
        "install",
        "-q",
        "--compile-bytecode",
        "--python",
        str(python),
    ]
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    exact = ["--require-hashes", "-r", str(lock)]
    if subprocess.run([*uv, *exact], env={**os.environ, "UV_SYSTEM_CERTS": "1"}).returncode != 0:
        subprocess.run([*pip, *exact], check=True)
