"""Compare-and-set: a row is written only if it still has the revision that the writer read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from sqlalchemy import Table, update

from sandlot.engine.core.errors import Conflict
from sandlot.engine.core.model import Build, Sandbox
from sandlot.engine.store.database import Database

R = TypeVar("R", Sandbox, Build)


async def swap(
    database: Database, table: Table, old: R, new: R, row: Callable[[R], dict[str, Any]], also: Any = None
) -> R:
    """Write `new` over `old` and return it with the next revision. Raises `Conflict` if the row moved on, or is gone.

    `also`: a statement for the same transaction.
    """
    noun = type(old).__name__.lower()
    if new.id != old.id:
        raise ValueError(f"swap is for two versions of the same {noun}")
    new = replace(new, revision=old.revision + 1)
    change = update(table).where(table.c.id == old.id, table.c.revision == old.revision).values(row(new))
    async with database.write(f"change {noun} {old.id!r}") as connection:
        if (await connection.execute(change)).rowcount != 1:
            raise Conflict(f"{noun} {old.id!r} was changed by somebody else at the same time; try again")
        if also is not None:
            await connection.execute(also)
    return new
