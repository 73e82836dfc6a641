"""Runtimes: what starts and stops machines on a host. An optional ability is a protocol of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Protocol, runtime_checkable

from sandlot.engine.core.model import Exit, Instance, Isolation, MachineSpec, Usage


class Runtime(Protocol):
    """Starts and stops machines. A driver keeps no state that matters: all of it is on the host or in `Instance`."""

    name: str
    isolation: Isolation

    async def check(self) -> None:
        """Raise `Unavailable`, saying what to install or change, if machines cannot be started here."""

    async def start(self, spec: MachineSpec) -> Instance:
        """Start a machine, all or nothing: on any failure (cancellation too) nothing of it is left. Raises `MachineFailed`."""

    async def stop(self, instance: Instance, *, grace: timedelta = timedelta(0)) -> None:
        """End the machine and free all it holds on the host. Idempotent."""

    async def alive(self, instance: Instance) -> bool: ...

    async def wait(self, instance: Instance) -> Exit:
        """Return when the machine has ended, with the reason as seen from outside (for example the kernel's OOM count)."""

    async def instances(self) -> Sequence[Instance]:
        """What this host really has of this runtime and this data directory, found by looking; stopped leftovers too."""

    async def usage(self, instance: Instance) -> Usage:
        """What the machine uses now, read from outside. Raises `NotFound` if it is gone."""

    async def close(self) -> None:
        """Give back what the host holds for machines in general, as far as no machine needs it. `start` works again after it."""


@runtime_checkable
class LimitReporting(Protocol):
    """The ability to tell which limits a machine has hit and survived."""

    async def limits_hit(self, instance: Instance) -> Sequence[str]: ...


@runtime_checkable
class Renaming(Protocol):
    """The ability to give a running machine another host name, where its own daemon may not."""

    async def rename(self, instance: Instance, hostname: str) -> None: ...


@runtime_checkable
class Freezing(Protocol):
    """The ability to freeze all processes of a machine in memory, and to thaw them."""

    async def freeze(self, instance: Instance) -> None: ...

    async def thaw(self, instance: Instance) -> None: ...


@runtime_checkable
class Capturing(Protocol):
    """The ability to write a machine's state to disk, for `start` to begin with (`MachineSpec.checkpoint`)."""

    captures_memory: bool  # False: files alone

    async def program(self) -> str:
        """What will read and write state now, by content. Earlier programs are kept for as long as state needs them."""

    def keep_programs(self, needed: Collection[str]) -> None:
        """Forget earlier programs that are not `needed`."""

    async def capture(self, instance: Instance, into: Path, *, final: bool) -> None:
        """Write the machine's state into the new directory `into`. The machine goes on, unharmed, also on failure.

        `final`: the machine is stopped right after, so what is written may share the machine's own disk.
        Connections into the machine must have been closed before. Raises `MachineFailed`.
        """


@runtime_checkable
class LayerExporting(Protocol):
    """The ability to export what a machine that was started for it (`MachineSpec.writes_layer`) wrote as a layer."""

    def keep_disk(self, instance: Instance, into: Path) -> None:
        """Keep the machine's disk in the new directory `into`. The machine is stopped right after."""

    def written(self, state: Path, machine_id: str) -> AbstractAsyncContextManager[Path]:
        """What a machine that is stopped by now had changed, as a directory to be copied from the disk that was kept."""
