"""A real server with the container runtime for the whole run, and for each test a platform alone that uses it by URL and key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server
from tests.platform.world import Served, by_url
from tests.tasks.world import Tasks


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with in_pristine(tmp_path_factory, "container") as server:
        yield server


@pytest.fixture
async def served(tmp_path: Path, engine: Server) -> AsyncIterator[Served]:
    async with Served(tmp_path, by_url(f"http://127.0.0.1:{engine.port}", engine.key)) as served:
        yield served


@pytest.fixture
async def ann(served: Served, tmp_path: Path) -> AsyncIterator[Tasks]:
    key = await served.key("ann")
    async with served.http(key) as http:
        yield Tasks(http, served, key, tmp_path)
