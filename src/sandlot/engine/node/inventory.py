"""What a host really has of machines, found by looking at it: for comparing with rows, and for cleaning up."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

from sandlot.engine.core.model import Machine
from sandlot.engine.core.ports import Capturing, Network
from sandlot.engine.node import machine_files
from sandlot.engine.node.boot_snapshots import is_boot_snapshot
from sandlot.engine.node.checkpoint_store import CheckpointStore
from sandlot.engine.node.machines import MachineFactory


class Inventory:
    """`guests`: the directory of guest runtimes, of which `guest` is the current one."""

    def __init__(
        self, *, machines: MachineFactory, network: Network, checkpoints: CheckpointStore, guest: Path
    ) -> None:
        self._machines, self._table = machines, machines.table
        self._network, self._checkpoints, self._guest = network, checkpoints, guest

    async def alive(self) -> Sequence[Machine]:
        """The machines of sandboxes that run."""
        found: list[Machine] = []
        for runtime in self._machines.runtimes.values():
            for instance in await runtime.instances():
                (sandbox_id,) = self._table.sandbox_ids({instance.machine_id})
                live = self._table.get(sandbox_id)
                if (live is None or live.is_leased) and await runtime.alive(instance):
                    record = machine_files.read(self._table.directory(sandbox_id))
                    found.append(machine_files.machine(sandbox_id, runtime, record))
        return found

    async def names(self) -> set[str]:
        """Everything that has something on this host, by name; what is being made, and what is kept warm, aside."""
        machine_ids = set(await self._network.claims())
        for runtime in self._machines.runtimes.values():
            machine_ids |= {instance.machine_id for instance in await runtime.instances()}
        names = self._table.on_disk() | self._table.sandbox_ids(machine_ids)
        names |= {name for name in self._checkpoints.names() if not is_boot_snapshot(name)}
        warm = {live.sandbox_id for live in self._table.live() if not live.is_leased}
        return {name for name in names - warm if not self._table.is_busy(name)}

    async def layers_in_use(self) -> frozenset[str]:
        """Layers that machines and checkpoints need."""
        found = {layer for record in self._table.records() for layer in record.get("boot", {}).get("layers", ())}
        saved = await asyncio.to_thread(self._checkpoints.all)
        return frozenset(
            found | {layer for name, each in saved.items() if not is_boot_snapshot(name) for layer in each.layers}
        )

    def forget_unneeded(self) -> None:
        """Guest runtimes and programs of earlier versions stay for as long as a machine or a checkpoint needs them."""
        records, saved = self._table.records(), self._checkpoints.all().values()
        guests = {state.guest for state in saved} | {record.get("boot", {}).get("guest") for record in records}
        for path in self._guest.parent.glob("[0-9a-f]*"):
            if path != self._guest and path.name not in guests:
                shutil.rmtree(path, ignore_errors=True)
        programs = {state.program for state in saved} | {
            record.get("instance", {}).get("program") for record in records
        }
        for runtime in self._machines.runtimes.values():
            if isinstance(runtime, Capturing):
                runtime.keep_programs({each for each in programs if each})
