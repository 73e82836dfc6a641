"""The console in real Chromium, on a real server: specs are in web/tests, and each is a test here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.console_web.furnished import furnish
from tests.console_web.node import WEB, missing, node_modules
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server, clean_environment

Spec = Callable[..., None]
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with in_pristine(tmp_path_factory, "container") as server:
        with server.http() as client:
            client.post("/repositories", json={"name": "app"}).raise_for_status()
        yield server


@pytest.fixture(scope="session")
def chromium() -> str:
    found = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if found is None:
        missing("Chromium is not installed")
    assert found is not None
    return found


@pytest.fixture
def spec(engine: Server, chromium: str) -> Spec:
    """Runs a spec of web/tests to its end. It can ask for things to be done to the server meanwhile."""
    node_modules()

    def run(name: str, acts: dict[str, Callable[..., Any]] | None = None, **given: Any) -> None:
        known: dict[str, Callable[..., Any]] = {"kill": engine.kill_9, "up": engine.up, **(acts or {})}
        process = subprocess.Popen(
            ["node", str(WEB / "tests" / f"{name}.mjs")],
            env={
                **clean_environment(),
                "CONSOLE_URL": f"http://127.0.0.1:{engine.port}",
                "CONSOLE_KEY": engine.key,
                "CONSOLE_GIVEN": json.dumps(given),
                "CHROMIUM": chromium,
                "NODE_ENV": "test",
                "HOME": os.environ.get("HOME", "/root"),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        said: list[str] = []
        try:
            assert process.stdin is not None and process.stdout is not None and process.stderr is not None
            for line in process.stdout:
                if line.startswith('{"ask"'):
                    wanted = json.loads(line)
                    answer = known[wanted.pop("ask")](**wanted)
                    process.stdin.write(json.dumps(answer) + "\n")
                    process.stdin.flush()
                else:
                    said.append(line)
            problem = process.stderr.read()
            assert process.wait(30) == 0, "".join(said)[-3000:] + problem[-5000:]
        finally:
            process.kill()
            process.communicate()

    return run


@pytest.fixture(scope="session")
def furnished(engine: Server) -> None:
    furnish(f"http://127.0.0.1:{engine.port}", engine.key)


@pytest.fixture
def database(engine: Server) -> Path:
    return engine.data_dir / "platform.db"
