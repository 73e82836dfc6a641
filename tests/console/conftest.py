"""The console's server side: on scripted sandboxes for what is about browsers, on a real engine for what is about sandboxes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server
from tests.platform.fakes import ScriptedProvider
from tests.platform.world import Served, scripted


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with in_pristine(tmp_path_factory, "container") as server:
        yield server


@pytest.fixture
async def quick(tmp_path: Path) -> AsyncIterator[Served]:
    async with Served(tmp_path, scripted(), {"scripted": ScriptedProvider()}) as served:
        yield served
