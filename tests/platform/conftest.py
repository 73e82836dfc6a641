"""Platforms on real sandboxes: beside an engine in one server, and pointed at that server by URL and key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server
from tests.platform.docker_world import DockerWorld, a_docker_world
from tests.platform.fakes import ScriptedProvider
from tests.platform.world import Served, by_url, scripted


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real server with the container runtime; its own platform is the one of the default `./sandlot up`."""
    with in_pristine(tmp_path_factory, "container") as server:
        yield server


@pytest.fixture(scope="session")
def docker_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerWorld]:
    """A Docker daemon of the tests' own, with one image."""
    with a_docker_world(tmp_path_factory.mktemp("docker")) as world:
        yield world


@pytest.fixture
def provider() -> ScriptedProvider:
    return ScriptedProvider()


@pytest.fixture
async def quick(tmp_path: Path, provider: ScriptedProvider) -> AsyncIterator[Served]:
    """A platform on scripted sandboxes, for what real ones would make slow."""
    async with Served(tmp_path, scripted(), {"scripted": provider}) as served:
        yield served


@pytest.fixture
async def elsewhere(tmp_path: Path, engine: Server) -> AsyncIterator[Served]:
    """A platform alone, whose provider is a second server that it knows by URL and key."""
    async with Served(tmp_path, by_url(f"http://127.0.0.1:{engine.port}", engine.key)) as served:
        yield served
