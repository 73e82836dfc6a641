"""What left the sandboxes of this node since the control plane last asked; within a bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from sandlot.engine.core.model import EgressEntry, EgressReport

MOST = 20_000  # entries that wait for the control plane


class EgressReports:
    """`sandbox_of` knows whose machine is which."""

    def __init__(self, sandbox_of: Callable[[str], str]) -> None:
        self._sandbox_of = sandbox_of
        self._entries: list[EgressEntry] = []
        self._left_out: Counter[str] = Counter()

    def note(self, machine_id: str, flows: Mapping[str, Any]) -> None:
        sandbox_id, now = self._sandbox_of(machine_id), datetime.now(UTC)
        self._left_out[sandbox_id] += flows["left_out"]
        for host, port, allowed, rule, reason, secrets, connections, sent, received in flows["rows"]:
            if len(self._entries) >= MOST:
                self._left_out[sandbox_id] += connections
                continue
            self._entries.append(
                EgressEntry(
                    sandbox_id=sandbox_id,
                    at=now,
                    host=host,
                    port=port,
                    allowed=allowed,
                    connections=connections,
                    bytes_out=sent,
                    bytes_in=received,
                    rule=rule,
                    reason=reason,
                    secrets=tuple(secrets),
                )
            )

    def take(self) -> EgressReport:
        entries, left_out = tuple(self._entries), {name: count for name, count in self._left_out.items() if count}
        self._entries, self._left_out = [], Counter()
        return EgressReport(entries=entries, left_out=left_out)
