"""Admission: whether there is room for one more running sandbox, and writing its row in the same step."""

from __future__ import annotations

from dataclasses import replace

from sandlot.engine.control.nodes import Nodes
from sandlot.engine.control.sandbox_request import SandboxLimits
from sandlot.engine.control.sandbox_states import HOLDING, SandboxStates
from sandlot.engine.core.errors import Conflict, NoCapacity
from sandlot.engine.core.model import Sandbox, State
from sandlot.engine.core.ports import SandboxStore


class KeyInUse(Conflict):
    """The idempotency key belongs to an earlier sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        super().__init__(f"the idempotency key belongs to sandbox {sandbox.id!r}")


class Admission:
    """One row at a time per node: whoever compares rows with machines of a node holds its lock."""

    def __init__(self, *, states: SandboxStates, sandboxes: SandboxStore, nodes: Nodes, limits: SandboxLimits) -> None:
        self._states, self._sandboxes, self._nodes, self._limits = states, sandboxes, nodes, limits

    async def admit(self, row: Sandbox) -> None:
        """Write the first row, if there is room. Raises `NoCapacity`, or `KeyInUse`."""
        async with self._nodes.no_new_machines(row.node):
            await self._check_key(row)
            try:
                has_room = await self._states.add(row, most=self._limits.max_sandboxes)
            except Conflict:
                await self._check_key(row)  # a request for another node had the same key
                raise
            if not has_room:
                raise self._full()

    async def _check_key(self, row: Sandbox) -> None:
        if row.idempotency_key is not None:
            earlier = await self._sandboxes.by_idempotency_key(row.team_id, row.idempotency_key)
            if earlier is not None:
                raise KeyInUse(earlier)

    async def readmit(self, paused: Sandbox) -> Sandbox:
        """The row of a paused sandbox on its way back, if there is room."""
        async with self._nodes.no_new_machines(paused.node):
            if await self._sandboxes.count(states=HOLDING) >= self._limits.max_sandboxes:
                raise self._full()
            return await self._states.swap(paused, replace(paused, state=State.RESUMING))

    def _full(self) -> NoCapacity:
        return NoCapacity(
            f"this server runs at most {self._limits.max_sandboxes} sandboxes at once; kill one, "
            "or raise SANDLOT_MAX_SANDBOXES"
        )
