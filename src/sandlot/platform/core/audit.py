"""The audit log's records: who did what, each chained to the one before by its digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

FIRST = "0" * 64  # what the first record follows


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """Something that somebody did. `seq` is 0 and `digest` empty until it is stored."""

    at: datetime
    actor: str  # a user, or `admin`
    action: str  # `POST /tasks`, or `key.create`
    target: str  # the path, or the id of what it was done to
    status: int = 200
    data: Mapping[str, Any] = field(default_factory=dict)
    seq: int = 0
    previous: str = FIRST
    digest: str = ""

    def digest_after(self, previous: str) -> str:
        """What its digest must be. It covers everything that is stored of it, and the digest of the one before."""
        told = {
            "at": self.at.astimezone(UTC).isoformat(timespec="microseconds"),
            "actor": self.actor,
            "action": self.action,
            "target": self.target,
            "status": self.status,
            "data": dict(self.data),
            "seq": self.seq,
            "previous": previous,
        }
        text = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()


class AuditStore(Protocol):
    async def append(self, record: AuditRecord) -> AuditRecord:
        """Give it a number and a digest, and keep it."""

    async def after(self, seq: int, limit: int) -> Sequence[AuditRecord]:
        """In their order."""

    async def newest(self, limit: int, before: int | None = None) -> Sequence[AuditRecord]:
        """Newest first."""
