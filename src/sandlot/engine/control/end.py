"""Ending sandboxes: on request, at their timeout, or because their machine ended."""

from __future__ import annotations

import asyncio
import logging

from sandlot.engine.control.inflight import InFlight
from sandlot.engine.control.lookup import SandboxLookup
from sandlot.engine.control.nodes import Nodes
from sandlot.engine.control.sandbox_states import SandboxStates, ended, stopping
from sandlot.engine.core.errors import Conflict, EngineError, MachineFailed
from sandlot.engine.core.model import MachineExited, Sandbox, State
from sandlot.engine.core.ports import Clock

log = logging.getLogger(__name__)

STOP_LIMIT_S = 60.0
ENDS_AT_ONCE = 8  # stopping is work for the host; a hundred at the same moment would starve running sandboxes


class Ending:
    """Every way in which a sandbox ends. Nothing of it is left when it has ended."""

    def __init__(
        self, *, states: SandboxStates, lookup: SandboxLookup, inflight: InFlight, nodes: Nodes, clock: Clock
    ) -> None:
        self._states, self._lookup, self._inflight = states, lookup, inflight
        self._nodes, self._clock = nodes, clock
        self._slots = asyncio.Semaphore(ENDS_AT_ONCE)

    async def kill(self, team_id: str | None, sandbox_id: str) -> None:
        """End a sandbox in any state; nothing of it is left when this returns. Raises `NotFound`."""
        sandbox = await self._lookup.get(team_id, sandbox_id)
        await self.finish(sandbox.id, "killed")

    async def end(self, seen: Sandbox, reason: str) -> bool:
        """End a sandbox only if it is still as it was seen. False: it moved on, and the reason may no longer hold."""
        if seen.state is State.STOPPING:
            current = await self._lookup.find(seen.id)
            if current is None or current.revision != seen.revision:
                return False
        else:
            try:
                await self._states.swap(seen, stopping(seen, reason))
            except Conflict:
                return False
        await self.finish(seen.id, reason)
        return True

    async def machine_exited(self, exited: MachineExited) -> None:
        """A node says that a machine ended by itself. One that is being moved is looked at when the move is over."""
        if exited.sandbox_id in self._inflight.moving:
            self._inflight.later(self._exited_after_move(exited))
        else:
            await self._exited(exited)

    async def _exited_after_move(self, exited: MachineExited) -> None:
        await self._inflight.settle(exited.sandbox_id)
        await self._exited(exited)

    async def _exited(self, exited: MachineExited) -> None:
        try:
            sandbox = await self._lookup.find(exited.sandbox_id)
            if sandbox is not None and sandbox.state is State.RUNNING:
                await self.end(sandbox, exited.exit.reason)
        except EngineError as error:  # nobody waits for an answer; the reconciler tries again
            log.error("could not end sandbox %s after its machine ended: %s", exited.sandbox_id, error)

    async def finish(self, sandbox_id: str, reason: str) -> None:
        """Wait for the end that is in progress, or be the one who does it. Goes on if the caller goes away."""
        ending = self._inflight.ending
        task = ending.get(sandbox_id)
        if task is None:
            task = self._inflight.track(ending, sandbox_id, self._end(sandbox_id, reason))
        await asyncio.shield(task)

    async def _end(self, sandbox_id: str, reason: str) -> None:
        # STOPPING first: a start in flight then fails its swap, and cleans up before the machine is stopped here.
        await self._states.change(sandbox_id, lambda old: stopping(old, reason))
        await self._inflight.settle(sandbox_id)
        await self.free(sandbox_id, reason)

    async def free(self, sandbox_id: str, reason: str) -> None:
        """Stop the machine and end the row. For whoever moves the sandbox; everybody else goes through `finish`."""
        sandbox = await self._states.change(sandbox_id, lambda old: stopping(old, reason))
        if sandbox.state is State.ENDED:
            return
        async with self._slots:
            await self._stop(sandbox)
        await self._states.change(sandbox_id, lambda old: ended(old, self._clock()))
        log.info("sandbox %s ended: %s", sandbox_id, sandbox.end_reason)

    async def _stop(self, sandbox: Sandbox) -> None:
        try:
            await asyncio.wait_for(self._nodes.of(sandbox).machines.stop(sandbox.id), STOP_LIMIT_S)
        except TimeoutError as error:
            raise MachineFailed(
                f"the machine of sandbox {sandbox.id!r} did not stop within {STOP_LIMIT_S:g} seconds; it is tried again"
            ) from error
