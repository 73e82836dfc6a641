"""Databases for tests of the stores: of either kind, with nothing in them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from sqlalchemy import text

from sandlot import sql

KINDS = ("sqlite", "postgresql")
Opened = TypeVar("Opened", bound=sql.Database)


@asynccontextmanager
async def nothing_in(kind: type[Opened], request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opened]:
    """For a fixture with `params=KINDS`."""
    if request.param == "sqlite":
        database = kind.at(tmp_path, None)
    else:
        database = kind.postgresql(request.getfixturevalue("postgresql_address"))
        async with database.write("start afresh") as connection:
            await connection.execute(text("DROP SCHEMA public CASCADE"))
            await connection.execute(text("CREATE SCHEMA public"))
    try:
        yield database
    finally:
        await database.close()
