"""Changing running sandboxes: their deadline and their network policy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from weakref import WeakValueDictionary

from sandlot.engine.control.deadlines import Deadlines
from sandlot.engine.control.lookup import SandboxLookup
from sandlot.engine.control.nodes import Nodes
from sandlot.engine.control.sandbox_request import SandboxLimits, check_timeout
from sandlot.engine.control.sandbox_states import SandboxStates, require_running
from sandlot.engine.core.errors import InvalidRequest
from sandlot.engine.core.model import NetworkPolicy, Sandbox
from sandlot.engine.core.ports import Clock


class Changes:
    """Methods that take `team_id` see only that team's; None sees all."""

    def __init__(
        self,
        *,
        states: SandboxStates,
        lookup: SandboxLookup,
        nodes: Nodes,
        deadlines: Deadlines,
        clock: Clock,
        limits: SandboxLimits,
    ) -> None:
        self._states, self._lookup, self._nodes, self._deadlines = states, lookup, nodes, deadlines
        self._clock, self._limits = clock, limits
        self._policy_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def set_timeout(self, team_id: str | None, sandbox_id: str, timeout_s: int) -> Sandbox:
        """End `timeout_s` from now, sooner or later than before; 0 ends it before this returns."""
        if timeout_s < 0:
            raise InvalidRequest(f"timeout must be 0 seconds or more, not {timeout_s}")
        check_timeout(timeout_s, self._limits)
        end_at = self._clock() + timedelta(seconds=timeout_s)
        sandbox = await self._update(team_id, sandbox_id, lambda old: replace(old, end_at=end_at))
        if timeout_s == 0:
            await self._deadlines.reached(sandbox)
        return sandbox

    async def refresh(self, team_id: str | None, sandbox_id: str, timeout_s: int) -> Sandbox:
        """End `timeout_s` from now, but not sooner than before."""
        if timeout_s < 0:
            raise InvalidRequest(f"duration must be 0 seconds or more, not {timeout_s}")
        check_timeout(timeout_s, self._limits)
        end_at = self._clock() + timedelta(seconds=timeout_s)
        return await self._update(team_id, sandbox_id, lambda old: replace(old, end_at=max(old.end_at, end_at)))

    async def set_network(self, team_id: str | None, sandbox_id: str, policy: NetworkPolicy) -> Sandbox:
        """Replace what the sandbox may reach. Who may reach the sandbox stays as it was created.

        In force on the node before it is in the row: after a crash in between, the row's policy is put in force again,
        and the caller was told nothing. The lock keeps two callers from leaving one policy here and the other there.
        """
        sandbox = await self._lookup.settled(team_id, sandbox_id)
        lock = self._policy_locks.setdefault(sandbox.id, asyncio.Lock())
        async with lock:
            sandbox = await self._lookup.settled(team_id, sandbox_id)
            require_running(sandbox, "change the network of")
            wanted = replace(
                policy,
                allow_public_traffic=sandbox.network.allow_public_traffic,
                mask_request_host=sandbox.network.mask_request_host,
                https_ports=sandbox.network.https_ports,
            )
            await self._nodes.of(sandbox).machines.set_network(sandbox.id, wanted)
            return await self._update(team_id, sandbox_id, lambda old: replace(old, network=wanted))

    async def _update(self, team_id: str | None, sandbox_id: str, change: Callable[[Sandbox], Sandbox]) -> Sandbox:
        sandbox = await self._lookup.settled(team_id, sandbox_id)

        def changed(old: Sandbox) -> Sandbox:
            require_running(old, "change")
            return change(old)

        return await self._states.change(sandbox.id, changed)
