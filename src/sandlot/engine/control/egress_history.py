"""The egress log: gathers from nodes what left sandboxes, keeps it for a while, and notes which secrets were used."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import timedelta
from typing import Protocol

from sandlot.engine.control.lookup import SandboxLookup
from sandlot.engine.control.nodes import Nodes
from sandlot.engine.core.errors import EngineError
from sandlot.engine.core.model import EgressEntry, EgressReport
from sandlot.engine.core.ports import Clock, EgressStore

log = logging.getLogger(__name__)

GATHER_S = 3.0
TIDY_S = 3600.0
Sleep = Callable[[float], Awaitable[None]]


class UsedSecrets(Protocol):
    async def used(self, team_id: str, names: Collection[str]) -> None: ...


class EgressHistory:
    def __init__(
        self, nodes: Nodes, lookup: SandboxLookup, store: EgressStore, secrets: UsedSecrets, clock: Clock
    ) -> None:
        self._nodes, self._lookup, self._store, self._secrets = nodes, lookup, store, secrets
        self._clock = clock

    async def gather(self) -> None:
        """Keep what nodes saw since the last time."""
        for node in self._nodes:
            report = await node.host.egress()
            for sandbox_id in {entry.sandbox_id for entry in report.entries} | report.left_out.keys():
                await self._keep(sandbox_id, report)

    async def _keep(self, sandbox_id: str, report: EgressReport) -> None:
        sandbox = await self._lookup.find(sandbox_id)
        if sandbox is None:
            return  # a machine of no sandbox: a build's
        entries = [entry for entry in report.entries if entry.sandbox_id == sandbox_id]
        left_out = report.left_out.get(sandbox_id, 0)
        await self._store.add(sandbox.team_id, sandbox_id, entries, left_out, self._clock())
        if used := {name for entry in entries for name in entry.secrets}:
            await self._secrets.used(sandbox.team_id, used)

    async def page(
        self, team_id: str, sandbox_id: str, *, after: int, limit: int
    ) -> tuple[Sequence[tuple[int, EgressEntry]], int]:
        """Entries with their numbers, oldest first, and how many connections were only counted. Raises `NotFound`."""
        found, left_out = await self._store.page(team_id, sandbox_id, after=after, limit=limit)
        if not found and not left_out and after == 0:
            await self._lookup.get(team_id, sandbox_id, include_ended=True)
        return found, left_out

    async def run(self, sleep: Sleep = asyncio.sleep) -> None:
        while True:
            try:
                await self.gather()
            except EngineError as error:
                log.error("what left sandboxes could not be kept; it is tried again: %s", error)
            await sleep(GATHER_S)

    async def tidy(self, keep: timedelta, sleep: Sleep = asyncio.sleep) -> None:
        """Forget what is older than `keep`, for as long as the server runs."""
        while True:
            try:
                await self._store.purge(self._clock() - keep)
            except EngineError as error:
                log.error("the egress log could not be tidied; it is tried again: %s", error)
            await sleep(TIDY_S)
