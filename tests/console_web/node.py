"""Node.js for tests of the console: a copy of its source with the packages of the lock file, or a reason to skip."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "web"
STATIC = ROOT / "src" / "sandlot" / "console" / "static"


def missing(what: str) -> None:
    """Skips here, fails where everything has to be there."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


def node_modules() -> Path:
    """Where the packages are; they are installed if they are not there yet."""
    if shutil.which("npm") is None:
        missing("Node.js is not installed")
    place = WEB / "node_modules"
    installed = place / ".package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < (WEB / "package-lock.json").stat().st_mtime:
        done = subprocess.run(
            ["npm", "ci", "--no-audit", "--no-fund"], cwd=WEB, capture_output=True, text=True, timeout=600
        )
        if done.returncode:
            missing(f"npm ci failed: {done.stderr[-500:]}")
        installed.touch()
    return place
