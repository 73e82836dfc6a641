"""The engine's database: its tables, and the errors it speaks in."""

from __future__ import annotations

from sandlot import sql
from sandlot.engine.core.errors import Conflict, EngineError, InvalidRequest, Unavailable
from sandlot.engine.store.schema import REVISION, sandboxes, secrets


class Database(sql.Database):
    tables = sql.Tables(
        name="the database",
        file="sandlot.db",
        migrations="sandlot.engine.store:migrations",
        revision=REVISION,
        version_table="alembic_version",
        lock=0x5A4D10,
        faults=sql.Faults(
            own=EngineError,
            conflict=Conflict,
            invalid=InvalidRequest,
            unavailable=Unavailable,
            misconfigured=InvalidRequest,
        ),
        sealed=(secrets.c.value, sandboxes.c.egress),
    )
