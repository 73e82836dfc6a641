"""A control plane for tests: the real services on a real SQLite file, with a fake node and a clock that stands still."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.fakes import FakeClock, FakeNode

from sandlot.engine.control.access import Access
from sandlot.engine.control.lifecycle import Lifecycle
from sandlot.engine.control.reconcile import Reconciler
from sandlot.engine.control.sandbox_request import Limits
from sandlot.engine.control.suspension import Suspension
from sandlot.engine.core.model import Sandbox, State, Team, Template
from sandlot.engine.store import Database, SqlAccess, SqlSandboxes, SqlTemplates


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    lifecycle: Lifecycle
    suspension: Suspension
    drained: list[str]
    reconciler: Reconciler
    access: Access
    sandboxes: SqlSandboxes
    templates: SqlTemplates
    node: FakeNode
    clock: FakeClock
    team: Team
    template: Template

    async def row(self, sandbox_id: str) -> Sandbox:
        row = await self.sandboxes.get(sandbox_id)
        assert row is not None
        return row

    async def states(self) -> list[State]:
        return sorted(row.state for row in await self.sandboxes.query())


@contextlib.asynccontextmanager
async def control_plane(
    data_dir: Path,
    node: FakeNode,
    clock: FakeClock | None = None,
    limits: Limits = Limits(max_sandboxes=10, max_timeout_s=3600),  # noqa: B008
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
    nodes = {node.name: node}
    lifecycle = Lifecycle(
        sandboxes=sandboxes,
        templates=templates,
        nodes=nodes,
        clock=clock,
        default_runtime="fake",
        limits=limits,
    )
    drained: list[str] = []

    async def drain(sandbox_id: str) -> None:
        drained.append(sandbox_id)

    suspension = Suspension(lifecycle=lifecycle, templates=templates, clock=clock, limits=limits, drain=drain)
    try:
        yield Control(
            lifecycle=lifecycle,
            suspension=suspension,
            drained=drained,
            reconciler=Reconciler(
                lifecycle=lifecycle, suspension=suspension, sandboxes=sandboxes, templates=templates, nodes=nodes
            ),
            access=access,
            sandboxes=sandboxes,
            templates=templates,
            node=node,
            clock=clock,
            team=team,
            template=template,
        )
    finally:
        await lifecycle.close()
        await database.close()
        node.forget_callers()
