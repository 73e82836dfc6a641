"""The machines that this process knows, by sandbox: where each is on disk, who acts on it, one act at a time.

A machine is usually named like its sandbox. One that was started ahead for the warm pool has a name of its own; when it is
leased, a symbolic link from the sandbox's name to the machine's directory says so, for this process and for the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandlot.engine.core.errors import NotFound
from sandlot.engine.core.model import Instance, Machine, Usage
from sandlot.engine.node import machine_files
from sandlot.engine.node.machine_files import BootRecord, Window

LEASES = 10_000


@dataclass(slots=True, kw_only=True)
class LiveMachine:
    """What this process knows of a machine it started or adopted; the host has everything but the token."""

    machine: Machine
    instance: Instance
    token: str | None
    boot: BootRecord
    watcher: asyncio.Task[None] | None = None  # done when the machine has ended
    is_leased: bool = True  # False: it belongs to no sandbox yet
    prepared: Window | None = None  # when it belonged to no sandbox; its log does not show that time
    frozen_usage: tuple[float, Usage] | None = None  # since when it is frozen, and what it uses meanwhile

    @property
    def sandbox_id(self) -> str:
        return self.machine.sandbox_id

    @property
    def has_ended(self) -> bool:
        return self.watcher is not None and self.watcher.done()


class MachineTable:
    """Machines by sandbox id; one that belongs to no sandbox yet is found by its own id."""

    def __init__(self, *, node: str, directory: Path) -> None:
        self._node, self._top = node, directory
        self._live: dict[str, LiveMachine] = {}
        self._acts: dict[str, tuple[asyncio.Lock, int]] = {}
        self._leases: OrderedDict[str, str] = (
            OrderedDict()
        )  # sandboxes by the machine that was leased to them, also lately
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    # -- finding ---------------------------------------------------------------------------------------------------

    def get(self, sandbox_id: str) -> LiveMachine | None:
        return self._live.get(sandbox_id)

    def known(self, sandbox_id: str) -> LiveMachine:
        live = self._live.get(sandbox_id)
        if live is None:
            raise NotFound(f"sandbox {sandbox_id} has no machine on node {self._node!r}")
        return live

    def put(self, live: LiveMachine) -> LiveMachine:
        self._live[live.sandbox_id] = live
        return live

    def pop(self, sandbox_id: str) -> LiveMachine | None:
        return self._live.pop(sandbox_id, None)

    def live(self) -> Sequence[LiveMachine]:
        return list(self._live.values())

    def lease(self, live: LiveMachine, machine: Machine) -> None:
        """Name a machine that belongs to nobody after a sandbox. It is leased when it has its identity, too."""
        del self._live[live.sandbox_id]
        self._link(machine.sandbox_id).symlink_to(live.instance.machine_id)
        live.machine = machine
        self._leases[live.instance.machine_id] = machine.sandbox_id
        if len(self._leases) > LEASES:
            self._leases.popitem(last=False)
        self.put(live)

    def sandbox_of(self, machine_id: str) -> str:
        """Whose machine it is, or was until a moment ago."""
        if machine_id in self._leases:
            return self._leases[machine_id]
        return next(iter(self.sandbox_ids({machine_id})))

    # -- on disk ---------------------------------------------------------------------------------------------------

    def machine_id(self, sandbox_id: str) -> str:
        """The machine's own name. Links are made by this process alone, so what one says is true."""
        link = self._link(sandbox_id)
        return link.readlink().name if link.is_symlink() else sandbox_id

    def directory(self, sandbox_id: str) -> Path:
        return self._top / self.machine_id(sandbox_id)

    def sandbox_ids(self, machine_ids: set[str]) -> set[str]:
        """The sandboxes that these machines belong to, and the machines that belong to none."""
        owners = {link.readlink().name: link.name for link in self._links()}
        return {owners.get(machine_id, machine_id) for machine_id in machine_ids}

    def on_disk(self) -> set[str]:
        """Every sandbox, and every machine of none, that something is written down about."""
        directories = {path.name for path in self._top.iterdir() if not path.is_symlink()}
        return self.sandbox_ids(directories) | {link.name for link in self._links()}

    def records(self) -> Sequence[Mapping[str, Any]]:
        """What is written down about each machine."""
        return [machine_files.read(path) for path in self._top.iterdir() if not path.is_symlink()]

    def erase(self, sandbox_id: str) -> None:
        """Remove all that is written down; the link last, since it leads to the rest."""
        shutil.rmtree(self.directory(sandbox_id), ignore_errors=True)
        link = self._link(sandbox_id)
        if link.is_symlink():
            link.unlink()

    def _link(self, sandbox_id: str) -> Path:
        return self._top / sandbox_id

    def _links(self) -> Iterator[Path]:
        return (path for path in self._top.iterdir() if path.is_symlink())

    # -- acting ----------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def alone(self, sandbox_id: str) -> AsyncIterator[None]:
        """One act at a time per sandbox; an id with an entry in `_acts` is being acted on."""
        lock, users = self._acts.get(sandbox_id, (asyncio.Lock(), 0))
        self._acts[sandbox_id] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._acts.pop(sandbox_id)
            if users > 1:
                self._acts[sandbox_id] = (lock, users - 1)

    def is_busy(self, sandbox_id: str) -> bool:
        return sandbox_id in self._acts
