"""The control plane: its services, put together over one writer of rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sandlot.engine.control.admission import Admission
from sandlot.engine.control.change import Changes
from sandlot.engine.control.create import CreateOptions, Creation
from sandlot.engine.control.deadlines import Deadlines
from sandlot.engine.control.end import Ending
from sandlot.engine.control.inflight import InFlight
from sandlot.engine.control.lookup import SandboxLookup
from sandlot.engine.control.nodes import Nodes, SecretValues, no_secrets
from sandlot.engine.control.parts import ControlParts
from sandlot.engine.control.reconcile import KeptCheckpoints, Reconciler
from sandlot.engine.control.sandbox_states import SandboxStates
from sandlot.engine.control.snapshots import Snapshots
from sandlot.engine.control.suspend import Suspension
from sandlot.engine.core.ports import Clock, Node, SandboxStore, TemplateStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    states: SandboxStates
    inflight: InFlight
    nodes: Nodes
    lookup: SandboxLookup
    creation: Creation
    changes: Changes
    ending: Ending
    suspension: Suspension
    snapshots: Snapshots
    deadlines: Deadlines

    @classmethod
    def build(
        cls,
        *,
        sandboxes: SandboxStore,
        templates: TemplateStore,
        nodes: Iterable[Node],
        clock: Clock,
        options: CreateOptions,
        secrets: SecretValues = no_secrets,
    ) -> ControlPlane:
        states, inflight, known = SandboxStates(sandboxes), InFlight(), Nodes(nodes, secrets)
        lookup, limits = SandboxLookup(sandboxes=sandboxes, inflight=inflight), options.limits
        ending = Ending(states=states, lookup=lookup, inflight=inflight, nodes=known, clock=clock)
        parts = ControlParts(
            states=states,
            inflight=inflight,
            lookup=lookup,
            nodes=known,
            admission=Admission(states=states, sandboxes=sandboxes, nodes=known, limits=limits),
            ending=ending,
            templates=templates,
            clock=clock,
        )
        creation, suspension = Creation(parts, options), Suspension(parts, limits)
        deadlines = Deadlines(
            sandboxes=sandboxes,
            states=states,
            inflight=inflight,
            ending=ending,
            suspension=suspension,
            clock=clock,
        )
        states.on_change(deadlines.changed)
        return cls(
            states=states,
            inflight=inflight,
            nodes=known,
            lookup=lookup,
            creation=creation,
            changes=Changes(states=states, lookup=lookup, nodes=known, deadlines=deadlines, clock=clock, limits=limits),
            ending=ending,
            suspension=suspension,
            snapshots=Snapshots(parts, suspension=suspension, creation=creation, limits=limits),
            deadlines=deadlines,
        )

    def reconciler(
        self, *, sandboxes: SandboxStore, templates: TemplateStore, kept: KeptCheckpoints | None = None
    ) -> Reconciler:
        return Reconciler(
            sandboxes=sandboxes,
            templates=templates,
            states=self.states,
            inflight=self.inflight,
            nodes=self.nodes,
            ending=self.ending,
            suspension=self.suspension,
            kept=kept,
        )

    async def open(self) -> None:
        """Learn how the nodes are, so that sandboxes can be placed."""
        await self.nodes.look()

    async def close(self) -> None:
        """Give up starts in flight, finish what is being ended. Running sandboxes stay."""
        await self.inflight.finish()
