"""Checkpoints of machines: pausing, resuming and capturing them, and what a crash in between leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from sandlot.engine.core.errors import InvalidRequest, NotFound, StateUnusable
from sandlot.engine.core.model import Checkpoint, Machine, NewMachine, PauseMode, RunningMachine
from sandlot.engine.core.ports import Freezing
from sandlot.engine.node import processes
from sandlot.engine.node.boot import captures_memory
from sandlot.engine.node.checkpoint_store import CheckpointStore
from sandlot.engine.node.idle_freezer import IdleFreezer
from sandlot.engine.node.logs import SandboxLogs
from sandlot.engine.node.machine_table import LiveMachine
from sandlot.engine.node.machines import MachineFactory
from sandlot.engine.node.proxy.app import LocalProxy

DRAIN_S = 0.2  # how long open exchanges may take to end by themselves before a pause cuts them


class Checkpoints:
    """A pause writes the whole state before the machine goes; a resume removes it only when the machine is back."""

    def __init__(
        self,
        *,
        machines: MachineFactory,
        store: CheckpointStore,
        freezer: IdleFreezer,
        proxy: LocalProxy,
        logs: SandboxLogs,
    ) -> None:
        self._machines, self._store, self._freezer = machines, store, freezer
        self._proxy, self._logs = proxy, logs

    async def pause(self, sandbox_id: str, *, memory: bool) -> PauseMode:
        live = self._machines.table.known(sandbox_id)
        runtime = self._machines.runtime_of(live)
        mode = PauseMode.FULL if memory else PauseMode.FILESYSTEM
        with self._proxy.closed(sandbox_id):
            await self._proxy.drain(sandbox_id, DRAIN_S)
            async with self._machines.table.alone(sandbox_id), self._freezer.thawed(sandbox_id):
                await self._logs.save(sandbox_id)
                if memory and not captures_memory(runtime):  # memory is kept by freezing; the files are saved besides
                    if not isinstance(runtime, Freezing):
                        raise InvalidRequest(f"runtime {runtime.name!r} cannot pause")
                    await runtime.freeze(live.instance)
                    await self._machines.save(live, sandbox_id, mode, final=True)
                    await self._machines.unwatch(sandbox_id)
                else:
                    await self._machines.save(live, sandbox_id, mode, final=True)
                    await processes.to_the_end(self._machines.free(sandbox_id))
            self._freezer.forget(sandbox_id)
            return mode

    async def capture(self, sandbox_id: str, name: str, *, memory: bool, lasting: bool = True) -> Checkpoint:
        live = self._machines.table.known(sandbox_id)
        mode = PauseMode.FULL if memory and captures_memory(self._machines.runtime_of(live)) else PauseMode.FILESYSTEM
        with self._proxy.closed(sandbox_id):
            await self._proxy.drain(sandbox_id, DRAIN_S)
            async with self._machines.table.alone(sandbox_id), self._freezer.thawed(sandbox_id):
                return await self._machines.save(live, name, mode, final=False, lasting=lasting)

    async def resume(self, new: NewMachine) -> Machine:
        saved = self._store.get(new.sandbox_id)
        if saved is not None and self._is_frozen_in_place(saved):
            if new.memory:
                return await self._thaw(new)
            await self._machines.stop(new.sandbox_id)
        live = await self._machines.start(replace(new, checkpoint=new.sandbox_id))
        await self._store.remove(new.sandbox_id)  # it is older than the machine from now on
        self._freezer.watch(new.sandbox_id)
        return live.machine

    def _is_frozen_in_place(self, saved: Checkpoint) -> bool:
        """Whether the memory that goes with this checkpoint is still in the frozen machine, if it is anywhere."""
        return saved.mode is PauseMode.FULL and not captures_memory(self._machines.runtime(saved.runtime))

    async def _thaw(self, new: NewMachine) -> Machine:
        """Let a frozen machine go on. One whose host was restarted meanwhile has only its files left."""
        async with self._machines.table.alone(new.sandbox_id):
            live = await self._machines.adopt_if_alive(_running(new))
            if live is None:
                raise StateUnusable(
                    f"the memory of sandbox {new.sandbox_id} did not outlive a restart of its host; its files did: "
                    "resume it without memory (connect with memory=false)"
                )
            return await self._continue(new, live)

    async def _continue(self, new: NewMachine, live: LiveMachine) -> Machine:
        await self._machines.thaw(new.sandbox_id)
        await self._store.remove(new.sandbox_id)
        self._freezer.watch(new.sandbox_id)
        return live.machine

    async def recover(self, new: NewMachine) -> Machine | PauseMode:
        async with self._machines.table.alone(new.sandbox_id):
            saved = self._store.get(new.sandbox_id)
            if saved is None or self._is_frozen_in_place(saved):
                live = await self._machines.adopt_if_alive(_running(new))
                if live is not None:
                    return await self._continue(new, live)
            if saved is None:
                raise NotFound(f"nothing is left of sandbox {new.sandbox_id} on this host")
            # What is saved is whole. A machine beside it was not yet ended, or has no identity yet.
            await processes.to_the_end(self._machines.free(new.sandbox_id))
            self._freezer.forget(new.sandbox_id)
            return saved.mode

    async def list(self) -> Mapping[str, Checkpoint]:
        return await asyncio.to_thread(self._store.all)

    async def discard(self, name: str) -> None:
        await self._store.remove(name)


def _running(new: NewMachine) -> RunningMachine:
    return RunningMachine(
        sandbox_id=new.sandbox_id, runtime=new.runtime, network=new.network, envd_token=new.envd_token
    )
