"""What left a sandbox, as the relays see it: connections counted by where they went, within bounds a guest cannot stretch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MOST_KINDS = 200  # told apart between two reports; the rest is only counted


@dataclass(slots=True, eq=False)
class Flow:
    """One connection. Its counters go on while it is open."""

    host: str
    port: int
    allowed: bool
    rule: str | None = None  # the header rule or domain that it fell under
    reason: str | None = None  # why it was denied
    secrets: frozenset[str] = frozenset()
    sent: int = 0
    received: int = 0
    is_told: bool = False

    @property
    def kind(self) -> tuple[Any, ...]:
        return self.host, self.port, self.allowed, self.rule, self.reason, tuple(sorted(self.secrets))


@dataclass(slots=True)
class _Sum:
    connections: int = 0
    sent: int = 0
    received: int = 0


class FlowLog:
    """The flows of one slot since the last report."""

    def __init__(self) -> None:
        self._open: set[Flow] = set()
        self._sums: dict[tuple[Any, ...], _Sum] = {}
        self._left_out = 0

    def begin(self, flow: Flow) -> Flow:
        self._open.add(flow)
        return flow

    def end(self, flow: Flow) -> None:
        self._open.discard(flow)
        self._add(flow)

    def deny(self, host: str, port: int, reason: str) -> None:
        self._add(Flow(host, port, allowed=False, reason=reason))

    def take(self) -> dict[str, Any] | None:
        """What is new, as JSON; None if nothing is."""
        for flow in self._open:
            if flow.sent or flow.received or not flow.is_told:
                self._add(flow)
        sums, left_out = self._sums, self._left_out
        self._sums, self._left_out = {}, 0
        if not sums and not left_out:
            return None
        rows = [[*kind, each.connections, each.sent, each.received] for kind, each in sums.items()]
        return {"rows": rows, "left_out": left_out}

    def _add(self, flow: Flow) -> None:
        new = 0 if flow.is_told else 1
        total = self._sums.get(flow.kind)
        if total is None:
            if len(self._sums) >= MOST_KINDS:
                self._left_out += new
                flow.is_told, flow.sent, flow.received = True, 0, 0
                return
            total = self._sums[flow.kind] = _Sum()
        total.connections += new
        total.sent += flow.sent
        total.received += flow.received
        flow.is_told, flow.sent, flow.received = True, 0, 0
