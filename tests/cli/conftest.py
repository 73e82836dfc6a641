"""The CLI as its users run it: a process of its own, with a clean environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Cli = Callable[..., subprocess.CompletedProcess[str]]

_SERVER = """
import json, sys, time
from pathlib import Path
from sandlot.server import instance
data_dir, url = Path(sys.argv[1]), sys.argv[2]
instance.claim(data_dir)
facts = instance.Facts(pid=__import__("os").getpid(), url=url, port=3999, domain=sys.argv[3] or None,
                       started_at="2026-01-01T00:00:00+00:00", ca=sys.argv[4] or None)
instance.announce(data_dir, facts)
print("ready", flush=True)
time.sleep(600)
"""


def environment(**more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "SANDLOT_CACHE_DIR") if name in os.environ}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "LANG": "C.UTF-8", "SANDLOT_PREPARE_TEMPLATES": "none", **more}


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    directory = tmp_path / 'it\'s a $HOME; "data" dir'  # what quoting must survive
    directory.mkdir()
    return directory


@pytest.fixture
def cli(data_dir: Path) -> Cli:
    def run(*arguments: str, timeout: float = 60, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "sandlot", *arguments],
            env=environment(SANDLOT_DATA_DIR=str(data_dir), **more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run


@pytest.fixture
def standing_server(data_dir: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """A process that holds the data directory as a server does, and answers nothing."""
    started: list[subprocess.Popen[str]] = []

    def start(url: str = "http://127.0.0.1:3999", domain: str = "", ca: str = "") -> subprocess.Popen[str]:
        (data_dir / "keys").mkdir()
        (data_dir / "keys" / "default").write_text("e2b_0123'abc\n")
        child = subprocess.Popen(
            [sys.executable, "-c", _SERVER, str(data_dir), url, domain, ca],
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        return child

    yield start
    for child in started:
        child.kill()
        child.communicate()
