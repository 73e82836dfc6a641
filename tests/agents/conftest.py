"""Servers for agents to work on, one per runtime for all of these tests, and Claude Code as it comes from npm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.agents import packages
from tests.agents.running import Laptop
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server

RUNTIMES = ("container", "gvisor")


@pytest.fixture(scope="session")
def claude() -> Path:
    return packages.claude()


@pytest.fixture
def laptop(claude: Path, tmp_path: Path) -> Laptop:
    return Laptop(claude, tmp_path)


@pytest.fixture(scope="session")
def server_with(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Server]]:
    """The server with this runtime, started when it is first asked for."""
    started: dict[str, Server] = {}
    with ExitStack() as stack:

        def server_with(runtime: str) -> Server:
            if runtime not in started:
                started[runtime] = stack.enter_context(in_pristine(tmp_path_factory, runtime))
            return started[runtime]

        yield server_with


@pytest.fixture(params=RUNTIMES)
def server(request: pytest.FixtureRequest, server_with: Callable[[str], Server]) -> Server:
    return server_with(request.param)


@pytest.fixture
def container_server(server_with: Callable[[str], Server]) -> Server:
    """For what does not depend on the runtime."""
    return server_with("container")
