"""A machine factory whose machines are entries in a dict, for tests of what stands on it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from sandlot.engine.core.errors import EngineError, MachineFailed
from sandlot.engine.core.model import Checkpoint, Instance, Isolation, Machine, NewMachine, PauseMode, Resources, Usage
from sandlot.engine.node.machine_files import BootRecord
from sandlot.engine.node.machine_table import LiveMachine

MB = 1 << 20


class FakeFactory:
    """Plays `MachineFactory`, its table, and `BootSnapshots.start`."""

    def __init__(self) -> None:
        self.table = self
        self.runtimes: dict[str, object] = {}
        self.broken = False
        self.failure: Exception = MachineFailed("broken on purpose")
        self.machines: dict[str, NewMachine] = {}
        self.lives: dict[str, LiveMachine] = {}
        self.removed: list[str] = []
        self.frozen: list[str] = []
        self.leased: list[tuple[str, str]] = []  # machine, sandbox
        self.unleasable: set[str] = set()
        self.saved: list[str] = []
        self.snapshots_used: list[str | None] = []

    async def start(self, new: NewMachine, *, boot_snapshot: str | None = None, is_leased: bool = True) -> LiveMachine:
        for _ in range(20):
            await asyncio.sleep(0)
        if self.broken:
            raise self.failure
        self.snapshots_used.append(boot_snapshot)
        self.machines[new.sandbox_id] = new
        machine = Machine(sandbox_id=new.sandbox_id, runtime=new.runtime, isolation=Isolation.NONE, address="10.0.0.1")
        live = self.lives[new.sandbox_id] = LiveMachine(
            machine=machine,
            instance=Instance(machine_id=new.sandbox_id, runtime=new.runtime),
            token=new.envd_token,
            boot=BootRecord(guest="g", layers=(), boot_id="b", resources=Resources()),
            is_leased=is_leased,
        )
        return live

    def get(self, machine_id: str) -> LiveMachine | None:
        return self.lives.get(machine_id)

    async def lease(self, live: LiveMachine, new: NewMachine) -> LiveMachine:
        machine_id = live.instance.machine_id
        del self.lives[machine_id]
        if machine_id in self.unleasable:
            self.machines.pop(machine_id)
            raise EngineError("it does not answer")
        self.leased.append((machine_id, new.sandbox_id))
        return live

    async def warm_up(self, live: LiveMachine, new: NewMachine) -> None:
        return None

    async def freeze(self, sandbox_id: str) -> None:
        self.frozen.append(sandbox_id)

    async def usage(self, sandbox_id: str) -> Usage:
        return Usage(
            at=datetime.now(UTC),
            cpu_count=1,
            cpu_used_pct=0,
            mem_used=10 * MB,
            mem_total=0,
            mem_cache=0,
            disk_used=0,
            disk_total=0,
        )

    async def save(
        self, live: LiveMachine, name: str, mode: PauseMode, *, final: bool, lasting: bool = True
    ) -> Checkpoint | None:
        self.saved.append(name)
        return None

    async def stop(self, sandbox_id: str) -> None:
        await asyncio.sleep(0)
        self.machines.pop(sandbox_id, None)
        self.lives.pop(sandbox_id, None)
        self.removed.append(sandbox_id)

    def die(self, machine_id: str) -> None:
        """It ends by itself."""
        ended = asyncio.get_running_loop().create_future()
        ended.set_result(None)
        self.lives[machine_id].watcher = ended  # type: ignore[assignment]
