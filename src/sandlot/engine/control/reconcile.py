"""Reconcile: compares sandbox rows with the machines that hosts really have, and repairs what a crash left between them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from sandlot.engine.control.end import Ending
from sandlot.engine.control.inflight import InFlight
from sandlot.engine.control.nodes import Nodes
from sandlot.engine.control.sandbox_records import running_machine
from sandlot.engine.control.sandbox_states import LIVE, SUSPENDING, TRANSIENT, SandboxStates
from sandlot.engine.control.suspend import Suspension
from sandlot.engine.core.errors import EngineError
from sandlot.engine.core.model import Machine, Sandbox, State
from sandlot.engine.core.ports import Node, SandboxStore, TemplateStore

log = logging.getLogger(__name__)

INTERVAL_S = 60.0
LOOK_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Where rows and machines disagree."""

    lost: tuple[Sandbox, ...] = ()  # running by the row, and there is no machine
    stray: tuple[Machine, ...] = ()  # a machine of no live row
    stuck: tuple[Sandbox, ...] = ()  # halfway by the row, and nobody is moving it
    sound: tuple[Sandbox, ...] = ()  # running, with its machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Repairs:
    """What one pass did, by sandbox id."""

    lost: tuple[str, ...] = ()
    stray: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    adopted: tuple[str, ...] = ()
    freed: tuple[str, ...] = ()  # in the node's words


def drift(rows: Sequence[Sandbox], machines: Sequence[Machine], moving: Collection[str] = ()) -> Drift:
    """Compare live rows with live machines. What is in `moving` is neither lost nor stray nor stuck.

    `rows` must have been read before `machines`: a running row without a machine then is a loss, not a start in between.
    """
    alive = {machine.sandbox_id for machine in machines}
    known = {row.id for row in rows if row.state in LIVE}
    still = [row for row in rows if row.id not in moving]
    return Drift(
        lost=tuple(row for row in still if row.state is State.RUNNING and row.id not in alive),
        stray=tuple(m for m in machines if m.sandbox_id not in known and m.sandbox_id not in moving),
        stuck=tuple(row for row in still if row.state in TRANSIENT),
        sound=tuple(row for row in still if row.state is State.RUNNING and row.id in alive),
    )


class KeptCheckpoints(Protocol):
    """Who else needs checkpoints: builds."""

    async def checkpoints(self) -> Collection[str]: ...


class Reconciler:
    """Compares rows with machines, node by node."""

    def __init__(
        self,
        *,
        sandboxes: SandboxStore,
        templates: TemplateStore,
        states: SandboxStates,
        inflight: InFlight,
        nodes: Nodes,
        ending: Ending,
        suspension: Suspension,
        kept: KeptCheckpoints | None = None,
    ) -> None:
        self._sandboxes, self._templates, self._states = sandboxes, templates, states
        self._inflight, self._nodes, self._ending = inflight, nodes, ending
        self._suspension, self._kept = suspension, kept

    async def at_start(self) -> Repairs:
        """Before the first request: take over running sandboxes, finish what an earlier process left halfway."""
        return await self._pass(adopting=True)

    async def once(self) -> Repairs:
        """A pass beside normal work."""
        return await self._pass(adopting=False)

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """A pass every minute, for as long as the server runs."""
        while True:
            await sleep(INTERVAL_S)
            try:
                await self.once()
            except Exception:  # a host that is broken for a moment: the next pass looks again
                log.exception("could not compare sandboxes with their machines; it is tried again")

    async def _pass(self, *, adopting: bool) -> Repairs:
        passes = [await self._node_pass(node, adopting=adopting) for node in self._nodes]
        repairs = Repairs(
            lost=tuple(id for each in passes for id in each.lost),
            stray=tuple(id for each in passes for id in each.stray),
            stuck=tuple(id for each in passes for id in each.stuck),
            adopted=tuple(id for each in passes for id in each.adopted),
            freed=tuple(what for each in passes for what in each.freed),
        )
        if repairs != Repairs():
            log.info(
                "reconciled: adopted %d, lost %s, stray %s, stuck %s, freed %s",
                *(
                    len(repairs.adopted),
                    list(repairs.lost),
                    list(repairs.stray),
                    list(repairs.stuck),
                    list(repairs.freed),
                ),
            )
        return repairs

    async def _node_pass(self, node: Node, *, adopting: bool) -> Repairs:
        # With new machines held off on this node, a machine or directory without a row belongs to nobody: it cannot be one
        # that is just coming into being.
        limit = asyncio.timeout(None if adopting else LOOK_LIMIT_S)  # creates wait for this look
        async with self._nodes.no_new_machines(node.name), limit:
            moving = self._inflight.ids()  # also before the rows: a move that ends in between was one
            rows = [row for row in await self._sandboxes.query(states=LIVE) if row.node == node.name]
            found = drift(rows, await node.machines.list(), moving | self._inflight.ids())
            stray = [machine.sandbox_id for machine in found.stray if await self._stopped(node, machine)]
            snapshots = {each.checkpoint for each in await self._templates.snapshots(None) if each.checkpoint}
            others = set(await self._kept.checkpoints()) if self._kept is not None else set()
            keep = {row.id for row in rows} | snapshots | others | moving | self._inflight.ids()
            freed = tuple(await node.host.sweep(keep))
        lost = await self._end_each(found.lost, "lost: the machine is gone")
        stuck = [row.id for row in found.stuck if await self._finished(row)]
        adopted = [row.id for row in found.sound if adopting and await self._adopted(row)]
        return Repairs(lost=tuple(lost), stray=tuple(stray), stuck=tuple(stuck), adopted=tuple(adopted), freed=freed)

    async def _finished(self, row: Sandbox) -> bool:
        """Bring a sandbox that was halfway to one end or the other."""
        if row.state in SUSPENDING:
            try:
                if await self._suspension.recover(row):
                    return True
            except EngineError as error:
                log.error("could not recover sandbox %s, which was %s: %s", row.id, row.state.value, error)
                return False
            except Exception:
                log.exception("could not recover sandbox %s, which was %s", row.id, row.state.value)
                return False
        return bool(
            await self._end_each([row], f"interrupted: the server stopped while the sandbox was {row.state.value}")
        )

    async def _stopped(self, node: Node, machine: Machine) -> bool:
        try:
            await node.machines.stop(machine.sandbox_id)
        except EngineError as error:
            log.error("could not stop the stray machine of sandbox %s: %s", machine.sandbox_id, error)
            return False
        except Exception:  # a sandbox that is broken in a new way must not hold up the others
            log.exception("could not stop the stray machine of sandbox %s", machine.sandbox_id)
            return False
        return True

    async def _end_each(self, rows: Sequence[Sandbox], reason: str) -> list[str]:
        ended = []
        for row in rows:
            try:
                if await self._ending.end(row, reason):
                    ended.append(row.id)
            except EngineError as error:  # tried again in the next pass
                log.error("could not end sandbox %s (%s): %s", row.id, reason, error)
            except Exception:
                log.exception("could not end sandbox %s (%s)", row.id, reason)
        return ended

    async def _adopted(self, row: Sandbox) -> bool:
        try:
            await self._nodes.of(row).machines.adopt(running_machine(await self._nodes.told(row)))
            self._states.announce(row)
        except EngineError as error:
            log.error("could not adopt sandbox %s: %s", row.id, error)
            await self._end_each([row], f"lost: the server could not adopt it again ({error})")
            return False
        return True
