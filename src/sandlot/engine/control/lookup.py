"""Finding sandboxes: one, a page of them, or one that has settled after a start, a pause or a resume."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from sandlot.engine.control.inflight import InFlight
from sandlot.engine.control.listing import Page, decode_cursor, encode_cursor
from sandlot.engine.control.sandbox_states import LISTED, STARTING_OR_SUSPENDING
from sandlot.engine.core.errors import NotFound
from sandlot.engine.core.ids import parse_sandbox_id
from sandlot.engine.core.model import Sandbox, State
from sandlot.engine.core.ports import SandboxStore

SETTLE_TRIES = 5


class SandboxLookup:
    """Methods that take `team_id` see only that team's; None sees all."""

    def __init__(self, *, sandboxes: SandboxStore, inflight: InFlight) -> None:
        self._sandboxes, self._inflight = sandboxes, inflight

    async def find(self, sandbox_id: str) -> Sandbox | None:
        """The row of any team in any state, or None. For the gateway and for operators."""
        return await self._sandboxes.get(parse_sandbox_id(sandbox_id))

    async def get(self, team_id: str | None, sandbox_id: str, *, include_ended: bool = False) -> Sandbox:
        """Raises `NotFound` for what is unknown, another team's, or (unless asked for) ended."""
        sandbox = await self.find(sandbox_id)
        if (
            sandbox is None
            or (team_id is not None and sandbox.team_id != team_id)
            or (sandbox.state is State.ENDED and not include_ended)
        ):
            raise NotFound(f"sandbox {sandbox_id!r} was not found; it may have been killed or have reached its timeout")
        return sandbox

    async def settled(self, team_id: str | None, sandbox_id: str) -> Sandbox:
        """The row, after waiting for a start, a pause or a resume in flight."""
        sandbox = await self.get(team_id, sandbox_id)
        for _ in range(SETTLE_TRIES):
            # A row that is still halfway, with nobody moving it, was read just before its last write.
            if sandbox.id not in self._inflight.moving and sandbox.state not in STARTING_OR_SUSPENDING:
                break
            await self._inflight.settle(sandbox.id)
            sandbox = await self.get(team_id, sandbox_id)
        return sandbox

    async def running(self) -> Sequence[Sandbox]:
        return await self._sandboxes.query(states=[State.RUNNING])

    async def live_of(self, team_id: str) -> Sequence[Sandbox]:
        """Those that have a machine, or are about to."""
        states = [State.CREATING, State.RUNNING, State.CAPTURING, State.RESUMING]
        return await self._sandboxes.query(team_id=team_id, states=states)

    async def list(
        self,
        team_id: str | None,
        *,
        states: Collection[State] = LISTED,
        metadata: Mapping[str, str] | None = None,
        template: str | None = None,
        started_after: datetime | None = None,
        descending: bool = True,
        limit: int = 100,
        token: str | None = None,
    ) -> Page:
        """One page, ordered by start. Raises `InvalidRequest` for a token that was not made here."""
        rows = await self._sandboxes.query(
            team_id=team_id,
            states=states,
            metadata=metadata,
            template=template,
            started_after=started_after,
            descending=descending,
            limit=limit + 1,
            after=decode_cursor(token) if token else None,
        )
        more = len(rows) > limit
        rows = rows[:limit]
        return Page(sandboxes=rows, next_token=encode_cursor(rows[-1].started_at, rows[-1].id) if more else None)

    async def count(self, team_id: str | None, states: Collection[State] = (State.RUNNING,)) -> int:
        return await self._sandboxes.count(team_id=team_id, states=states)
