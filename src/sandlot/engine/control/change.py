"""Changing running sandboxes: their deadline and their network policy."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from weakref import WeakValueDictionary

from sandlot.engine.control.deadlines import Deadlines
from sandlot.engine.control.lookup import SandboxLookup
from sandlot.engine.control.nodes import Nodes
from sandlot.engine.control.sandbox_request import SandboxLimits, check_timeout
from sandlot.engine.control.sandbox_states import SandboxStates, require_running
from sandlot.engine.core.errors import EngineError, InvalidRequest
from sandlot.engine.core.header_rules import secret_names
from sandlot.engine.core.model import NetworkPolicy, Sandbox, State
from sandlot.engine.core.ports import Clock

log = logging.getLogger(__name__)


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
            told = await self._nodes.told(replace(sandbox, network=wanted))
            await self._nodes.of(sandbox).machines.set_network(sandbox.id, told.network)
            return await self._update(team_id, sandbox_id, lambda old: replace(old, network=wanted))

    async def secret_changed(self, team_id: str, name: str) -> None:
        """Have sandboxes that run use the new value of a secret, or none if it is gone."""
        for sandbox in await self._lookup.live_of(team_id):
            if name in secret_names(sandbox.network.rules):
                try:
                    await self._tell_again(sandbox.id)
                except EngineError as error:  # it ended, or is being paused: it is told when it is resumed
                    log.warning("sandbox %s was not told of a secret's new value: %s", sandbox.id, error)

    async def _tell_again(self, sandbox_id: str) -> None:
        lock = self._policy_locks.setdefault(sandbox_id, asyncio.Lock())
        async with lock:
            sandbox = await self._lookup.settled(None, sandbox_id)
            if sandbox.state is State.RUNNING:
                told = await self._nodes.told(sandbox)
                await self._nodes.of(told).machines.set_network(told.id, told.network)

    async def _update(self, team_id: str | None, sandbox_id: str, change: Callable[[Sandbox], Sandbox]) -> Sandbox:
        sandbox = await self._lookup.settled(team_id, sandbox_id)

        def changed(old: Sandbox) -> Sandbox:
            require_running(old, "change")
            return change(old)

        return await self._states.change(sandbox.id, changed)
