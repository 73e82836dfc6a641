"""What left a sandbox: connections, summed up by where they went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressEntry:
    """Connections of one kind within a few seconds: to one host, with one outcome."""

    sandbox_id: str
    at: datetime  # when they were reported
    host: str  # the name that was asked for, or an address
    port: int
    allowed: bool
    connections: int  # that began; 0: bytes of such as began before
    bytes_out: int
    bytes_in: int
    rule: str | None = None  # the header rule that they fell under
    reason: str | None = None  # why they were denied, or failed
    secrets: tuple[str, ...] = ()  # names of those that left with them


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressReport:
    """What a node saw since it was last asked. `left_out`: connections that were only counted, by sandbox."""

    entries: tuple[EgressEntry, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
