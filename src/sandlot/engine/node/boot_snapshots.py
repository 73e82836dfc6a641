"""Boot snapshots: checkpoints of machines that had only booted. Later machines of the same kind begin there, not with a boot.

A boot snapshot is worth its disk once a kind is asked for again. It saves time and nothing else: a machine that cannot begin
with one boots.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from sandlot.engine.core.errors import EngineError, MachineFailed, StateUnusable
from sandlot.engine.core.ids import new_machine_id
from sandlot.engine.core.model import NetworkPolicy, NewMachine, PauseMode
from sandlot.engine.core.ports import Capturing
from sandlot.engine.node.boot import can_boot_instead
from sandlot.engine.node.checkpoint_store import CheckpointStore
from sandlot.engine.node.machine_kind import MachineKind
from sandlot.engine.node.machine_table import LiveMachine
from sandlot.engine.node.machines import MachineFactory

log = logging.getLogger(__name__)

PREFIX = "boot-"
FORMAT = 2  # raise it when machines of the same kind boot with something else than before
MOST_NOTED = 256
RETRY_S = 600.0  # after one could not be made, or was no good


class BootSnapshots:
    """Starts machines the quickest way there is, and makes the snapshots that are worth it."""

    def __init__(
        self,
        *,
        machines: MachineFactory,
        checkpoints: CheckpointStore,
        guest: str,
        layers_dir: Path,
        most: int,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._machines, self._checkpoints, self._guest, self._layers_dir = machines, checkpoints, guest, layers_dir
        self._most, self._now = most, now
        self._asked: OrderedDict[str, float] = OrderedDict()  # names, and from when on another request counts
        self._wanted: OrderedDict[str, NewMachine] = OrderedDict()
        self._wake = asyncio.Event()
        self.used = 0  # how many machines began with one

    async def start(self, new: NewMachine, *, is_leased: bool = True) -> LiveMachine:
        """A machine with its identity: from the template's checkpoint or a boot snapshot; by booting where that is no good."""
        snapshot = await self.find(new)
        try:
            return await self._machines.start(new, boot_snapshot=snapshot, is_leased=is_leased)
        except (StateUnusable, MachineFailed) as error:
            if snapshot is None and not can_boot_instead(new):
                raise
            log.warning(
                "sandbox %s boots, because the checkpoint of template %s cannot be used: %s",
                *(new.sandbox_id, new.template.name, error),
            )
        if snapshot is not None:
            await self.discard(snapshot)
        return await self._machines.start(replace(new, checkpoint=None), is_leased=is_leased)

    async def find(self, new: NewMachine) -> str | None:
        """The boot snapshot for this machine; None: it has to boot, or has a checkpoint of its own to begin with."""
        if not self._most or new.checkpoint is not None:
            return None
        program = await self._program(new.runtime)
        if program is None:
            return None
        name = self._name(new, program)
        if self._checkpoints.get(name) is not None:
            self._checkpoints.touch(name)
            self.used += 1
            return name
        self._note(name, new)
        return None

    async def _program(self, runtime_name: str) -> str | None:
        """What writes memory for this runtime, by content; None: nothing does."""
        runtime = self._machines.runtime(runtime_name)
        return await runtime.program() if isinstance(runtime, Capturing) and runtime.captures_memory else None

    def _name(self, new: NewMachine, program: str) -> str:
        """Everything that makes booted machines differ is part of it."""
        digest = hashlib.sha256(repr((FORMAT, MachineKind.of(new), self._guest, program)).encode()).hexdigest()[:16]
        return f"{PREFIX}{new.template.id}-{digest}"

    def _note(self, name: str, new: NewMachine) -> None:
        counts_from = self._asked.pop(name, None)
        self._asked[name] = self._now() if counts_from is None else counts_from
        while len(self._asked) > MOST_NOTED:
            self._asked.popitem(last=False)
        if counts_from is not None and self._now() >= counts_from:
            self._wanted[name] = replace(new, network=NetworkPolicy(), env_vars={})
            self._wake.set()

    async def run(self, quiet: Callable[[], Awaitable[None]]) -> None:
        """Make the snapshots that are worth it, one at a time and when it is quiet, for as long as the server runs."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._wanted:
                await quiet()
                try:
                    await self.step()
                except Exception:  # a host that is broken for a moment: sandboxes boot meanwhile
                    log.exception("could not make a boot snapshot; it is tried again")

    async def step(self) -> None:
        name, new = self._wanted.popitem(last=False)
        if self._checkpoints.get(name) is not None:
            return
        try:
            await self._make(new, name)
        except (EngineError, OSError) as error:  # a full disk, say
            self._asked[name] = self._now() + RETRY_S
            log.warning(
                "sandboxes of template %s go on booting, no boot snapshot could be made: %s", new.template.name, error
            )
        await self.tidy()

    async def _make(self, like: NewMachine, name: str) -> None:
        """Boot a machine that nobody asked for, and keep its state."""
        new = replace(like, sandbox_id=new_machine_id(), envd_token=secrets.token_hex(32))
        live = await self._machines.start(new, is_leased=False)
        try:
            await self._machines.warm_up(live, new)
            await self._machines.save(live, name, PauseMode.FULL, final=True)
        finally:
            await self._machines.stop(new.sandbox_id)

    async def discard(self, name: str) -> None:
        """A machine could not begin with it."""
        self._asked[name] = self._now() + RETRY_S
        await self._checkpoints.remove(name)

    async def forget(self, template_id: str) -> None:
        """The template is gone, or is another one now."""
        for name in self._names():
            if name.startswith(f"{PREFIX}{template_id}-"):
                await self._checkpoints.remove(name)

    async def tidy(self) -> None:
        """Remove what cannot be used any more, and beyond the limit what was not used for longest."""
        names = self._names()
        programs = {await self._program(name) for name in self._machines.runtimes} if names else set()
        usable = []
        for name in names:
            saved = self._checkpoints.get(name)
            is_current = saved is not None and saved.guest == self._guest and saved.program in programs
            if saved and is_current and all((self._layers_dir / layer).is_dir() for layer in saved.layers):
                usable.append(name)
            else:
                await self._checkpoints.remove(name)
        usable.sort(key=self._checkpoints.used_at, reverse=True)
        for name in usable[self._most :]:
            await self._checkpoints.remove(name)

    def _names(self) -> list[str]:
        return [name for name in self._checkpoints.names() if is_boot_snapshot(name)]


def is_boot_snapshot(name: str) -> bool:
    return name.startswith((PREFIX, "seed-"))  # "seed-": as versions before 0.2 named them
