"""The platform's database: a SQLite file of its own, or tables named `platform_...` in a PostgreSQL database that others use too."""

from __future__ import annotations

import secrets

from sqlalchemy import insert, select

from sandlot import sql
from sandlot.platform.core.errors import ConfigurationError, Conflict, InvalidRequest, PlatformError, Unavailable
from sandlot.platform.store.schema import (
    REVISION,
    VERSION_TABLE,
    browser_contexts,
    browser_extensions,
    facts,
    repositories,
    sessions,
)


class Database(sql.Database):
    tables = sql.Tables(
        name="the platform's database",
        file="platform.db",
        migrations="sandlot.platform.store:migrations",
        revision=REVISION,
        version_table=VERSION_TABLE,
        lock=0x5A4D11,
        faults=sql.Faults(
            own=PlatformError,
            conflict=Conflict,
            invalid=InvalidRequest,
            unavailable=Unavailable,
            misconfigured=ConfigurationError,
        ),
        sealed=(sessions.c.envs, repositories.c.token, browser_contexts.c.key, browser_extensions.c.key),
    )

    async def identity(self) -> str:
        """The id that this platform puts into the metadata of its sandboxes; created once."""
        async with self.write("read the platform's identity") as connection:
            query = select(facts.c.value).where(facts.c.name == "identity")
            known: str | None = (await connection.execute(query)).scalar_one_or_none()
            if known is None:
                known = f"plt-{secrets.token_hex(8)}"
                await connection.execute(insert(facts), {"name": "identity", "value": known})
            return known
