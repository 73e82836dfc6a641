"""The audit log in the database. Records are appended one at a time, each with the digest of the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

from sqlalchemy import insert, select, text

from sandlot.platform.core.audit import FIRST, AuditRecord
from sandlot.platform.store.database import Database
from sandlot.platform.store.records import Row
from sandlot.platform.store.schema import audit

APPEND_LOCK = 0x5A4D13


class SqlAudit:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, record: AuditRecord) -> AuditRecord:
        async with self._database.write("write the audit log") as connection:
            if connection.dialect.name == "postgresql":
                await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": APPEND_LOCK})
            query = select(audit.c.seq, audit.c.digest).order_by(audit.c.seq.desc()).limit(1)
            last = (await connection.execute(query)).one_or_none()
            seq, previous = (last[0] + 1, last[1]) if last is not None else (1, FIRST)
            numbered = replace(record, seq=seq, previous=previous)
            kept = replace(numbered, digest=numbered.digest_after(previous))
            await connection.execute(insert(audit), {**asdict(kept), "data": dict(kept.data)})
            return kept

    async def after(self, seq: int, limit: int) -> Sequence[AuditRecord]:
        async with self._database.read("read the audit log") as connection:
            query = select(audit).where(audit.c.seq > seq).order_by(audit.c.seq).limit(limit)
            return [_record(row) for row in (await connection.execute(query)).mappings()]

    async def newest(self, limit: int, before: int | None = None) -> Sequence[AuditRecord]:
        query = select(audit).order_by(audit.c.seq.desc()).limit(limit)
        if before is not None:
            query = query.where(audit.c.seq < before)
        async with self._database.read("read the audit log") as connection:
            return [_record(row) for row in (await connection.execute(query)).mappings()]


def _record(row: Row) -> AuditRecord:
    return AuditRecord(**{name: row[name] for name in AuditRecord.__dataclass_fields__})
