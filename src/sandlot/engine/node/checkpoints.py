"""Saved states of machines: when they are written, what begins with them, and what a crash in between leaves."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

from sandlot.engine.core.errors import InvalidRequest, NotFound, StateUnusable
from sandlot.engine.core.model import Checkpoint, Machine, NewMachine, PauseMode
from sandlot.engine.core.ports import Capturing, Freezing, LayerExporting, Runtime
from sandlot.engine.node import machine_files as records
from sandlot.engine.node import processes
from sandlot.engine.node.boot import captures_memory
from sandlot.engine.node.checkpoint_store import Checkpoints
from sandlot.engine.node.envd.client import EnvdClient
from sandlot.engine.node.machines import Live, Machines

SETTLE_S = 0.06  # what gVisor needs to notice that connections were closed; one that it has not breaks the saved state


class SavedStates:
    """`awake` lets a machine run that is held still; `last_words` saves its log; `start` starts one from its state."""

    def __init__(
        self,
        *,
        machines: Machines,
        checkpoints: Checkpoints,
        envd: EnvdClient,
        awake: Callable[[str], AbstractAsyncContextManager[None]],
        last_words: Callable[[str], Awaitable[None]],
        start: Callable[[NewMachine], Awaitable[Machine]],
        scratch: Path,
    ) -> None:
        self._machines, self._checkpoints, self._envd = machines, checkpoints, envd
        self._awake, self._last_words, self._start, self._scratch = awake, last_words, start, scratch
        shutil.rmtree(scratch, ignore_errors=True)  # of a process that was killed while it took files

    async def pause(self, sandbox_id: str, *, memory: bool) -> PauseMode:
        live = self._machines.known(sandbox_id)
        runtime = self._machines.of(live)
        mode = PauseMode.FULL if memory else PauseMode.FILESYSTEM
        async with self._machines.alone(sandbox_id), self._awake(sandbox_id):
            await self._last_words(sandbox_id)
            if memory and not captures_memory(runtime):  # memory is kept by standing still; the files are kept besides
                if not isinstance(runtime, Freezing):
                    raise InvalidRequest(f"runtime {runtime.name!r} cannot pause")
                await runtime.freeze(live.instance)
                await self.save(runtime, live, sandbox_id, mode, final=True)
                await self._machines.unwatch(sandbox_id)
            else:
                await self.save(runtime, live, sandbox_id, mode, final=True)
                await processes.to_the_end(self._machines.undo(sandbox_id))
            return mode

    async def capture(self, sandbox_id: str, name: str, *, memory: bool, lasting: bool = True) -> Checkpoint:
        live = self._machines.known(sandbox_id)
        runtime = self._machines.of(live)
        mode = PauseMode.FULL if memory and captures_memory(runtime) else PauseMode.FILESYSTEM
        async with self._machines.alone(sandbox_id), self._awake(sandbox_id):
            return await self.save(runtime, live, name, mode, final=False, lasting=lasting)

    async def save(
        self, runtime: Runtime, live: Live, name: str, mode: PauseMode, *, final: bool, lasting: bool = True
    ) -> Checkpoint:
        if not isinstance(runtime, Capturing):
            raise InvalidRequest(f"runtime {runtime.name!r} cannot save the state of a machine")
        facts = records.facts(name, live.instance, live.begun, mode, live.token)
        expected = (await runtime.usage(live.instance)).mem_used if runtime.captures_memory else 0

        async def fill(state: Path) -> None:
            if final and mode is PauseMode.FILESYSTEM and runtime.captures_memory:
                await self._envd.halt(live.machine.address, live.token)
            await asyncio.sleep(SETTLE_S)
            await runtime.capture(live.instance, state, final=final)

        return await self._checkpoints.write(facts, fill, expected_bytes=expected, lasting=lasting)

    async def take_files(self, sandbox_id: str, take: Callable[[Path], Awaitable[None]]) -> None:
        """End a machine, and hand out what it wrote as a directory in the form of a layer. The machine is gone after it."""
        live = self._machines.known(sandbox_id)
        runtime = self._machines.of(live)
        if not isinstance(runtime, Capturing) or not isinstance(runtime, LayerExporting):
            raise InvalidRequest(f"runtime {runtime.name!r} cannot hand out what a machine wrote")
        taken = self._scratch / sandbox_id
        async with self._machines.alone(sandbox_id):
            try:
                await runtime.capture(live.instance, taken, final=True)
                await processes.to_the_end(self._machines.undo(sandbox_id))
                async with runtime.written(taken, sandbox_id) as upper:
                    await take(upper)
            finally:
                shutil.rmtree(taken, ignore_errors=True)

    async def resume(self, new: NewMachine) -> Machine:
        saved = self._checkpoints.get(new.sandbox_id)
        if saved is not None and self._stands_still(saved):
            if new.memory:
                return await self._thaw(new)
            async with self._machines.alone(new.sandbox_id):
                await processes.to_the_end(self._machines.undo(new.sandbox_id))
        machine = await self._start(replace(new, checkpoint=new.sandbox_id))
        await self._checkpoints.remove(new.sandbox_id)  # it is older than the machine from now on
        return machine

    def _stands_still(self, saved: Checkpoint) -> bool:
        """Whether the memory that goes with this state is where the machine is, if it is anywhere."""
        return saved.mode is PauseMode.FULL and not captures_memory(self._machines.runtime(saved.runtime))

    async def _thaw(self, new: NewMachine) -> Machine:
        """Let a machine that stands still go on. One whose host was restarted meanwhile has only its files left."""
        async with self._machines.alone(new.sandbox_id):
            live = await self._machines.if_alive(new)
            if live is None:
                raise StateUnusable(
                    f"the memory of sandbox {new.sandbox_id} did not outlive a restart of its host; its files did: "
                    "resume it without memory (connect with memory=false)"
                )
            return await self._let_go(new, live)

    async def _let_go(self, new: NewMachine, live: Live) -> Machine:
        runtime = self._machines.runtime(new.runtime)
        if isinstance(runtime, Freezing):
            await runtime.thaw(live.instance)
        await self._checkpoints.remove(new.sandbox_id)
        return live.machine

    async def recover(self, new: NewMachine) -> Machine | PauseMode:
        async with self._machines.alone(new.sandbox_id):
            saved = self._checkpoints.get(new.sandbox_id)
            if saved is None or self._stands_still(saved):
                live = await self._machines.if_alive(new)
                if live is not None:
                    return await self._let_go(new, live)
            if saved is None:
                raise NotFound(f"nothing is left of sandbox {new.sandbox_id} on this host")
            # What is saved is whole. A machine beside it was not yet ended, or not yet told who it is.
            await processes.to_the_end(self._machines.undo(new.sandbox_id))
            return saved.mode
