"""Fakes of runtimes: machines that are entries in a dict, and runtimes named for the failure they play."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sandlot.engine.core.errors import MachineFailed, NotFound, Unavailable
from sandlot.engine.core.model import Exit, Instance, Isolation, MachineSpec, Usage


@dataclass
class FakeMachine:
    spec: MachineSpec
    exit: Exit | None = None
    frozen: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    clock: asyncio.TimerHandle | None = None


class FakeHostOfMachines:
    """What is left when a driver object is gone: the machines. Give the same one to a new driver to play a restart."""

    def __init__(self) -> None:
        self.machines: dict[str, FakeMachine] = {}


class FakeRuntime:
    """Plays by the runtime contract in memory. It knows two programs: `/bin/sleep N`, and any other runs until stopped."""

    name = "fake"
    isolation = Isolation.NONE
    captures_memory = True

    def __init__(self, host: FakeHostOfMachines | None = None) -> None:
        self.host = host or FakeHostOfMachines()

    async def check(self) -> None:
        return None

    async def start(self, spec: MachineSpec) -> Instance:
        if spec.machine_id in self.host.machines:
            raise MachineFailed(f"sandbox {spec.machine_id} already has a machine")
        if missing := [layer for layer in spec.layers if not layer.is_dir()]:
            raise MachineFailed(f"sandbox {spec.machine_id} needs the layer {missing[0].name!r}")
        await asyncio.sleep(0.001)  # a place to be cancelled at
        if spec.checkpoint is not None and not (spec.checkpoint / "memory").exists():
            raise MachineFailed(f"the state of sandbox {spec.machine_id} cannot be read")
        if not any((layer / spec.argv[0].lstrip("/")).exists() for layer in spec.layers):
            raise MachineFailed(f"{spec.argv[0]} is not in sandbox {spec.machine_id}")
        machine = self.host.machines[spec.machine_id] = FakeMachine(spec)
        if spec.argv[0] == "/bin/sleep":
            loop = asyncio.get_running_loop()
            machine.clock = loop.call_later(float(spec.argv[1]), self.end, spec.machine_id, "exited")
        return Instance(machine_id=spec.machine_id, runtime=self.name)

    def end(self, machine_id: str, reason: str, expected: bool = False) -> None:
        """Play a machine that ends."""
        machine = self.host.machines[machine_id]
        if machine.exit is None:
            machine.exit = Exit(reason=reason, expected=expected)
            machine.ended.set()

    async def stop(self, instance: Instance, *, grace: timedelta = timedelta(0)) -> None:
        if machine := self.host.machines.get(instance.machine_id):
            self.end(instance.machine_id, "stopped", expected=True)
            if machine.clock:
                machine.clock.cancel()
            del self.host.machines[instance.machine_id]

    async def alive(self, instance: Instance) -> bool:
        machine = self.host.machines.get(instance.machine_id)
        return machine is not None and machine.exit is None

    async def wait(self, instance: Instance) -> Exit:
        machine = self.host.machines.get(instance.machine_id)
        if machine is None:
            return Exit(reason="exited")
        await machine.ended.wait()
        assert machine.exit is not None
        return machine.exit

    async def instances(self) -> Sequence[Instance]:
        return [Instance(machine_id=machine_id, runtime=self.name) for machine_id in sorted(self.host.machines)]

    async def usage(self, instance: Instance) -> Usage:
        resources = self._running(instance).spec.resources
        return Usage(
            at=datetime.now(UTC), cpu_count=resources.cpu_count, cpu_used_pct=0.0,
            mem_used=1 << 20, mem_total=resources.memory_mb << 20, mem_cache=0,
            disk_used=1 << 12, disk_total=resources.disk_mb << 20,
        )  # fmt: skip

    async def program(self) -> str:
        return "fake-1"

    def keep_programs(self, needed: Collection[str]) -> None:
        return None

    async def capture(self, instance: Instance, into: Path, *, final: bool) -> None:
        self._running(instance)
        into.mkdir(parents=True)
        (into / "memory").write_text(instance.machine_id)

    async def freeze(self, instance: Instance) -> None:
        self._running(instance).frozen = True

    async def thaw(self, instance: Instance) -> None:
        self._running(instance).frozen = False

    def _running(self, instance: Instance) -> FakeMachine:
        machine = self.host.machines.get(instance.machine_id)
        if machine is None or machine.exit is not None:
            raise NotFound(f"sandbox {instance.machine_id} has no machine that runs")
        return machine

    async def close(self) -> None: ...


class BrokenRuntime(FakeRuntime):
    """Never starts anything."""

    async def check(self) -> None:
        raise Unavailable("this runtime is broken on purpose")

    async def start(self, spec: MachineSpec) -> Instance:
        raise MachineFailed(f"sandbox {spec.machine_id} could not be started: this runtime is broken on purpose")


class SlowRuntime(FakeRuntime):
    """Holds every start until the test says go."""

    def __init__(self, host: FakeHostOfMachines | None = None) -> None:
        super().__init__(host)
        self.go = asyncio.Event()
        self.asked = asyncio.Event()

    async def start(self, spec: MachineSpec) -> Instance:
        self.asked.set()
        await self.go.wait()
        return await super().start(spec)
