"""Booting a machine: its record, its slot, the runtime's start, and the moment its daemon gets its identity."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from sandlot.engine.core.codec import encode
from sandlot.engine.core.errors import EngineError, InvalidRequest, MachineFailed, StateUnusable
from sandlot.engine.core.model import Instance, Machine, MachineSpec, NewMachine, PauseMode, Slot
from sandlot.engine.core.ports import Capturing, Network, Runtime
from sandlot.engine.node import machine_files
from sandlot.engine.node.checkpoint_store import CheckpointStore
from sandlot.engine.node.envd import start_command
from sandlot.engine.node.envd.client import EnvdClient, Identity
from sandlot.engine.node.envd.commands import CommandClient, EnvdAddress
from sandlot.spans import span

WARM_UP_S = 10.0
SINCE_EVER = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """The guest runtime that new machines get, and how its daemon is started. Older ones stay beside it."""

    directory: Path  # named by a digest of its content
    argv: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedMachine:
    """A machine that runs, whose daemon may not have its identity yet."""

    machine: Machine
    instance: Instance
    boot: machine_files.BootRecord
    held_token: str | None  # what its daemon believes; it takes a new identity only from who knows this
    prepared: machine_files.Window | None = None  # when it belonged to no sandbox


class MachineBoot:
    """Boots machines in a directory that exists. What fails halfway is for the caller to undo."""

    def __init__(
        self,
        *,
        layers_dir: Path,
        guest: Guest,
        network: Network,
        envd: EnvdClient,
        commands: CommandClient | None,
        checkpoints: CheckpointStore,
    ) -> None:
        self._layers_dir, self._guest, self._network, self._envd = layers_dir, guest, network, envd
        self._commands, self._checkpoints = commands, checkpoints

    async def launch(
        self, runtime: Runtime, new: NewMachine, directory: Path, boot_snapshot: str | None = None
    ) -> StartedMachine:
        """Start it: from a checkpoint of its own, from a boot snapshot, or cold."""
        machine_files.write(directory, {"runtime": new.runtime})
        with span("slot"):
            slot = await self._network.acquire(directory.name, new.network)
        spec, held_token = await asyncio.to_thread(self._spec, runtime, new, directory, slot, boot_snapshot)
        with span("runtime"):
            instance = await runtime.start(spec)
        boot = machine_files.BootRecord(
            guest=spec.guest.name,
            layers=tuple(layer.name for layer in spec.layers),
            boot_id=spec.boot_id or "",
            resources=spec.resources,
        )
        record = {
            "runtime": new.runtime,
            "address": slot.address,
            "slot": slot.index,
            "instance": dict(instance.state),
            "boot": encode(boot),
        }
        prepared = (SINCE_EVER, datetime.now(UTC)) if boot_snapshot is not None else None
        machine_files.write(directory, machine_files.with_prepared(record, prepared) if prepared else record)
        machine = machine_files.machine(new.sandbox_id, runtime, record)
        return StartedMachine(machine=machine, instance=instance, boot=boot, held_token=held_token, prepared=prepared)

    async def settle(self, runtime: Runtime, new: NewMachine, started: StartedMachine) -> None:
        """Give the daemon its identity, and run the template's start command."""
        await self.identify(runtime, new, started.instance, started.machine.address, started.held_token)
        if new.checkpoint is not None and not new.memory and captures_memory(runtime):
            await self._envd.halt(started.machine.address, new.envd_token)
        if self._commands is not None and not continues(runtime, new):
            with span("start command"):
                await start_command.begin(
                    self._commands, EnvdAddress(started.machine.address, new.envd_token), new.template
                )

    async def warm_up(self, new: NewMachine, address: str) -> None:
        """Run a command that does nothing the way the first one will be run, so that the first one finds its files cached."""
        if self._commands is None:
            return
        line = start_command.command(new.template.default_user, None, {}, "true")
        with contextlib.suppress(EngineError):  # an image without bash, say: whoever gets it is told by the daemon
            envd = EnvdAddress(address, new.envd_token)
            await self._commands.run(envd, line, lambda *_: None, timeout_s=WARM_UP_S)

    def _spec(
        self, runtime: Runtime, new: NewMachine, directory: Path, slot: Slot, boot_snapshot: str | None
    ) -> tuple[MachineSpec, str | None]:
        """What to start, and the token that the daemon in a checkpoint holds."""
        fresh = MachineSpec(
            machine_id=directory.name,
            directory=directory,
            layers=tuple(self._layers_dir / layer for layer in new.template.layers),
            guest=self._guest.directory,
            slot=slot,
            resources=new.resources,
            hostname=new.sandbox_id,
            argv=self._guest.argv,
            env=self._guest.env,
            boot_id=str(uuid.uuid4()),
            writes_layer=new.writes_layer,
        )
        name = new.checkpoint or boot_snapshot
        if name is None:
            return fresh, None
        saved, state = self._checkpoints.open(name)
        if saved.runtime != runtime.name:
            raise InvalidRequest(f"the checkpoint {saved.name} is of runtime {saved.runtime!r}, not {runtime.name!r}")
        remembers = captures_memory(runtime)
        same_boot = new.memory and saved.mode is PauseMode.FULL and saved.name == new.sandbox_id
        guest = self._guest.directory.parent / saved.guest if remembers else self._guest.directory
        if not guest.is_dir():
            raise StateUnusable(f"the guest runtime inside the checkpoint {saved.name} is no longer on this host")
        spec = replace(
            fresh,
            layers=tuple(self._layers_dir / layer for layer in saved.layers),
            guest=guest,
            resources=saved.resources,
            boot_id=saved.boot_id if same_boot else fresh.boot_id,
            checkpoint=state,
            program=saved.program if remembers else None,
            owns_checkpoint=saved.name == new.sandbox_id,
        )
        return spec, saved.envd_token if remembers else None

    async def identify(
        self, runtime: Runtime, new: NewMachine, instance: Instance, address: str, held_token: str | None
    ) -> None:
        """Give the guest its identity. A machine that dies meanwhile fails at once, not after a timeout."""
        template = new.template
        identity = Identity(
            sandbox_id=new.sandbox_id,
            template_id=template.id,
            access_token=new.envd_token,
            default_user=template.default_user,
            default_workdir=template.default_workdir,
            env_vars=new.env_vars,
            authorities=self._network.authorities(new.network),
        )
        init = asyncio.ensure_future(self._envd.init(address, identity, held_token=held_token))
        death = asyncio.ensure_future(runtime.wait(instance))
        try:
            with span("identity"):
                await asyncio.wait({init, death}, return_when=asyncio.FIRST_COMPLETED)
            if not init.done():
                raise MachineFailed(
                    f"the machine of sandbox {new.sandbox_id} ended at its start: {death.result().reason}"
                )
            await init
        finally:
            for task in (init, death):
                task.cancel()
            await asyncio.gather(init, death, return_exceptions=True)


def captures_memory(runtime: Runtime) -> bool:
    return isinstance(runtime, Capturing) and runtime.captures_memory


def continues(runtime: Runtime, new: NewMachine) -> bool:
    """Whether what ran in the checkpoint runs on, so that nothing has to be started again."""
    return new.checkpoint is not None and new.memory and captures_memory(runtime)


def can_boot_instead(new: NewMachine) -> bool:
    """Whether the checkpoint only saves time: a built template can boot and run its start command, a snapshot cannot."""
    template = new.template
    return new.checkpoint is not None and (new.checkpoint, None) == (template.checkpoint, template.source)
