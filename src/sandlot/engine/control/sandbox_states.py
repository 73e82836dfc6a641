"""Moves: the table of a sandbox's states, and the one compare-and-set by which its row goes from one to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from sandlot.engine.core.errors import Conflict, NotFound, WrongState
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
HOLDING = LIVE - {State.PAUSED}  # states in which a sandbox has, or may have, a machine
SWAP_TRIES = 20


class SandboxStates:
    """Sandbox rows for writing. Belongs to `lifecycle`: nobody else moves a sandbox."""

    def __init__(self, store: SandboxStore) -> None:
        self._store = store
        self._listeners: list[Callable[[Sandbox], None]] = []

    def on_change(self, callback: Callable[[Sandbox], None]) -> None:
        self._listeners.append(callback)

    async def change(self, sandbox_id: str, change: Callable[[Sandbox], Sandbox]) -> Sandbox:
        """Read, change, write; again if somebody was quicker. `change` returns its argument to leave the row alone."""
        for _ in range(SWAP_TRIES):
            old = await self._store.get(sandbox_id)
            if old is None:
                raise NotFound(f"sandbox {sandbox_id!r} was not found")
            new = change(old)
            if new is old:
                return old
            try:
                return await self.swap(old, new)
            except WrongState:
                raise
            except Conflict:
                continue
        raise Conflict(f"sandbox {sandbox_id!r} is being changed by others at the same time; try again")

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
    return old if old.state is State.ENDED else replace(old, state=State.ENDED, ended_at=at)


def require_running(sandbox: Sandbox, doing: str) -> None:
    if sandbox.state is not State.RUNNING:
        raise WrongState(f"could not {doing} sandbox {sandbox.id!r}: it is {sandbox.state.value}, not running")
