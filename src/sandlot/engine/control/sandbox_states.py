"""Sandbox states: the table of moves, the named sets of states, and the one writer that moves a sandbox's row.

Every step is checked against `MOVES` and written by compare-and-set. Two rules keep machines from leaking. A row exists before
its machine does, so whatever a crash leaves behind is found by `reconcile`. And a row reaches ENDED only after its node has
freed everything, so an ended sandbox holds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from sandlot.engine.core import compare_and_set
from sandlot.engine.core.errors import WrongState
from sandlot.engine.core.model import Sandbox, State
from sandlot.engine.core.ports import SandboxStore

MOVES: Mapping[State, frozenset[State]] = {
    State.CREATING: frozenset({State.RUNNING, State.STOPPING}),
    State.RUNNING: frozenset({State.CAPTURING, State.PAUSING, State.STOPPING}),
    State.CAPTURING: frozenset({State.RUNNING, State.PAUSED, State.STOPPING}),
    State.PAUSING: frozenset({State.PAUSED, State.RUNNING, State.STOPPING}),
    State.PAUSED: frozenset({State.RESUMING, State.STOPPING}),
    State.RESUMING: frozenset({State.RUNNING, State.PAUSED, State.STOPPING}),
    State.STOPPING: frozenset({State.ENDED}),
    State.ENDED: frozenset(),
}

LIVE = frozenset(State) - {State.ENDED}
HOLDING = LIVE - {State.PAUSED}  # it has, or may have, a machine: what counts against the limit
SUSPENDING = frozenset({State.CAPTURING, State.PAUSING, State.RESUMING})  # its machine is being saved or restored
STARTING_OR_SUSPENDING = SUSPENDING | {State.CREATING}  # it will be running, paused or ended soon: worth waiting for
TRANSIENT = STARTING_OR_SUSPENDING | {State.STOPPING}  # somebody has to finish it
WAKEABLE = SUSPENDING | {State.PAUSED}  # a request may wait for it, or resume it
LISTED = (State.RUNNING, State.CAPTURING, State.PAUSING, State.PAUSED, State.RESUMING)


class SandboxStates:
    """The only writer of sandbox rows. Creating, changing, ending and suspending share one of these."""

    def __init__(self, store: SandboxStore) -> None:
        self._store = store
        self._listeners: list[Callable[[Sandbox], None]] = []

    def on_change(self, callback: Callable[[Sandbox], None]) -> None:
        """Call back, at once and without waiting, with every row written from here."""
        self._listeners.append(callback)

    async def add(self, row: Sandbox, *, most: int) -> bool:
        """The first row of a sandbox; False, and nothing is written, if `most` hold a machine already."""
        return await self._store.add(row, most=most, counting=HOLDING)

    async def change(self, sandbox_id: str, change: Callable[[Sandbox], Sandbox]) -> Sandbox:
        """Read, change, write; again if somebody was quicker. `change` returns its argument to leave the row alone."""
        return await compare_and_set.change(
            f"sandbox {sandbox_id!r}", lambda: self._store.get(sandbox_id), self.swap, change
        )

    async def swap(self, old: Sandbox, new: Sandbox) -> Sandbox:
        if new.state is not old.state and new.state not in MOVES[old.state]:
            raise WrongState(f"sandbox {old.id!r} is {old.state.value}; it cannot become {new.state.value}")
        written = await self._store.swap(old, new)
        self.announce(written)
        return written

    def announce(self, sandbox: Sandbox) -> None:
        for listener in self._listeners:
            listener(sandbox)


def stopping(old: Sandbox, reason: str) -> Sandbox:
    """The row on its way out. A sandbox that never ran gives its key back, so that the request can be repeated."""
    if old.state in (State.STOPPING, State.ENDED):
        return old
    key = None if old.state is State.CREATING else old.idempotency_key
    return replace(old, state=State.STOPPING, end_reason=reason, idempotency_key=key)


def ended(old: Sandbox, at: datetime) -> Sandbox:
    if old.state is State.ENDED:
        return old
    # Secrets go with the sandbox; the rest of the row is kept for a while.
    network = replace(old.network, rules=(), egress_proxy=None)
    return replace(
        old, state=State.ENDED, ended_at=at, env_vars={}, network=network, envd_token=None, traffic_token=None
    )


def require_running(sandbox: Sandbox, doing: str) -> None:
    if sandbox.state is not State.RUNNING:
        raise WrongState(f"could not {doing} sandbox {sandbox.id!r}: it is {sandbox.state.value}, not running")
