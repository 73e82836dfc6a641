"""A control plane for tests: the real services on a real SQLite file, with a fake node and a clock that stands still."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.fakes import FakeClock, FakeNode

from sandlot.engine.control.access import Access
from sandlot.engine.control.change import Changes
from sandlot.engine.control.create import CreateOptions, Creation
from sandlot.engine.control.deadlines import Deadlines
from sandlot.engine.control.end import Ending
from sandlot.engine.control.inflight import InFlight
from sandlot.engine.control.lookup import SandboxLookup
from sandlot.engine.control.plane import ControlPlane
from sandlot.engine.control.reconcile import Reconciler
from sandlot.engine.control.sandbox_request import SandboxLimits
from sandlot.engine.control.sandbox_states import SandboxStates
from sandlot.engine.control.snapshots import Snapshots
from sandlot.engine.control.suspend import Suspension
from sandlot.engine.core.model import Sandbox, State, Team, Template
from sandlot.engine.store import Database, SqlAccess, SqlSandboxes, SqlTemplates


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    plane: ControlPlane
    reconciler: Reconciler
    access: Access
    sandboxes: SqlSandboxes
    templates: SqlTemplates
    node: FakeNode
    clock: FakeClock
    team: Team
    template: Template

    @property
    def states(self) -> SandboxStates:
        return self.plane.states

    @property
    def inflight(self) -> InFlight:
        return self.plane.inflight

    @property
    def lookup(self) -> SandboxLookup:
        return self.plane.lookup

    @property
    def creation(self) -> Creation:
        return self.plane.creation

    @property
    def changes(self) -> Changes:
        return self.plane.changes

    @property
    def ending(self) -> Ending:
        return self.plane.ending

    @property
    def suspension(self) -> Suspension:
        return self.plane.suspension

    @property
    def snapshots(self) -> Snapshots:
        return self.plane.snapshots

    @property
    def deadlines(self) -> Deadlines:
        return self.plane.deadlines

    async def row(self, sandbox_id: str) -> Sandbox:
        row = await self.sandboxes.get(sandbox_id)
        assert row is not None
        return row

    async def all_states(self) -> list[State]:
        return sorted(row.state for row in await self.sandboxes.query())


@contextlib.asynccontextmanager
async def control_plane(
    data_dir: Path,
    node: FakeNode,
    clock: FakeClock | None = None,
    limits: SandboxLimits = SandboxLimits(max_sandboxes=10, max_timeout_s=3600),  # noqa: B008
    more_nodes: Sequence[FakeNode] = (),
) -> AsyncIterator[Control]:
    """Open the same `data_dir` with the same node again, and it is the same machine after a restart of the server."""
    clock = clock or FakeClock()
    database = Database.sqlite(data_dir / "sandlot.db")
    await database.migrate()
    sandboxes, templates = SqlSandboxes(database), SqlTemplates(database)
    access = Access(store=SqlAccess(database), clock=clock)
    team = await access.ensure_first_team()
    made = datetime(2030, 1, 1, tzinfo=UTC)
    template = Template(
        id="t1",
        team_id=None,
        name="base",
        layers=("l1",),
        build_id="b1",
        created_at=made,
        updated_at=made,
        envd_version="0.6.13",
    )
    await templates.put(template)
    plane = ControlPlane.build(
        sandboxes=sandboxes,
        templates=templates,
        nodes=[node, *more_nodes],
        clock=clock,
        options=CreateOptions(default_runtime="fake", limits=limits),
    )
    await plane.open()
    following = asyncio.create_task(plane.nodes.follow(plane.ending.machine_exited))
    while node.followed_to is None:  # noqa: ASYNC110
        await asyncio.sleep(0)
    try:
        yield Control(
            plane=plane,
            reconciler=plane.reconciler(sandboxes=sandboxes, templates=templates),
            access=access,
            sandboxes=sandboxes,
            templates=templates,
            node=node,
            clock=clock,
            team=team,
            template=template,
        )
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        node.forget_followers()
        await plane.close()
        await database.close()
