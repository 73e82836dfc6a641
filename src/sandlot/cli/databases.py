"""Opening an instance's database from the command line, whether its server runs or not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from sandlot.cli.options import settings
from sandlot.cli.output import Failure
from sandlot.server import instance

if TYPE_CHECKING:
    from sandlot.sql import Database

Opened = TypeVar("Opened", bound="Database")
Found = TypeVar("Found")


def with_database(kind: type[Opened], act: Callable[[Opened], Coroutine[Any, Any, Found]]) -> Found:
    """What `act` finds in the database, which is brought to this version first."""
    chosen = settings()
    place = chosen.data_dir
    if chosen.database_url is None and not os.access(place if place.exists() else place.parent, os.W_OK | os.X_OK):
        raise Failure(f"{place} belongs to another user; run the same with sudo")
    place.mkdir(parents=True, exist_ok=True, mode=instance.PASSABLE)

    async def run() -> Found:
        database = kind.at(place, chosen.database_url)
        try:
            await database.migrate()
            return await act(database)
        finally:
            await database.close()

    return asyncio.run(run())
