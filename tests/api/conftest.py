"""Fixtures of the door tests. They run on uvloop, as the server does."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.api.servers import EMPTY_DATABASE, Doors, open_doors

from sandlot.engine.store import Database


def pytest_asyncio_loop_factories(config: Any, item: Any) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session", autouse=True)
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with all tables, made once: every test gets a copy."""
    path = tmp_path_factory.mktemp("database") / "empty.db"

    async def make() -> None:
        made = Database.sqlite(path)
        await made.migrate()
        await made.close()

    asyncio.run(make())
    EMPTY_DATABASE.append(path)
    return path


@pytest.fixture
async def doors(tmp_path: Path) -> AsyncIterator[Doors]:
    async with open_doors(tmp_path) as opened:
        yield opened


@pytest.fixture
async def sandbox(doors: Doors) -> str:
    return str((await doors.create())["sandboxID"])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """One server for many small questions, in a thread of its own."""
    ready: queue.Queue[tuple[Doors, asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    async def serve() -> None:
        done = asyncio.Event()
        async with open_doors(tmp_path_factory.mktemp("shared")) as opened:
            ready.put((opened, asyncio.get_running_loop(), done))
            await done.wait()

    thread = threading.Thread(target=uvloop.run, args=(serve(),))
    thread.start()
    opened, loop, done = ready.get(timeout=30)
    yield opened
    loop.call_soon_threadsafe(done.set)
    thread.join(30)
