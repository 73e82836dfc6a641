"""Writes and checks the audit log."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sandlot.platform.core.audit import FIRST, AuditRecord, AuditStore
from sandlot.platform.core.errors import Forbidden, PlatformError
from sandlot.platform.core.model import Caller
from sandlot.platform.core.ports import Clock

PAGE = 1000
MAX_TARGET = 500
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """What a check of the whole log found. `digest` is that of its last record: keep it elsewhere, and compare."""

    records: int
    digest: str
    problem: str | None = None  # the first thing that is wrong


class AuditLog:
    def __init__(self, *, store: AuditStore, clock: Clock) -> None:
        self._store, self._clock = store, clock

    async def write(
        self, caller: Caller, action: str, target: str, status: int = 200, data: Mapping[str, Any] | None = None
    ) -> None:
        """A log that cannot be written is told in the server's own log: what was done is done."""
        record = AuditRecord(
            at=self._clock(),
            actor=caller.user_id or "admin",
            action=action,
            target=target[:MAX_TARGET],
            status=status,
            data=data or {},
        )
        try:
            await self._store.append(record)
        except PlatformError:
            log.exception("the audit log could not be written: %s %s by %s", action, record.target, record.actor)

    async def newest(self, caller: Caller, limit: int, before: int | None = None) -> Sequence[AuditRecord]:
        """Raises `Forbidden` unless an admin asks."""
        _only_admins(caller)
        return await self._store.newest(limit, before)

    async def verify(self, caller: Caller) -> AuditFinding:
        _only_admins(caller)
        return await verify(self._store)


async def verify(store: AuditStore) -> AuditFinding:
    """Follow the chain from the beginning."""
    seq, previous, count = 0, FIRST, 0
    while page := await store.after(seq, PAGE):
        for record in page:
            problem = _problem(record, seq, previous)
            if problem is not None:
                return AuditFinding(records=count, digest=previous, problem=problem)
            seq, previous, count = record.seq, record.digest, count + 1
    return AuditFinding(records=count, digest=previous)


def _problem(record: AuditRecord, seq: int, previous: str) -> str | None:
    if record.seq != seq + 1:
        return f"record {seq + 1} is missing: the next one is {record.seq}"
    if record.previous != previous:
        return f"record {record.seq} does not follow the one before it"
    if record.digest != record.digest_after(previous):
        return f"record {record.seq} was changed after it was written"
    return None


def _only_admins(caller: Caller) -> None:
    if not caller.is_admin:
        raise Forbidden("only an admin key may read the audit log")
