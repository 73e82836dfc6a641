"""The machine factory: starts, stops, freezes and captures machines. Everything else of a node stands on it and calls down."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sandlot.engine.core.errors import GuestUnresponsive, InvalidRequest, MachineFailed, NotFound
from sandlot.engine.core.model import (
    Checkpoint,
    Instance,
    NetworkPolicy,
    NewMachine,
    PauseMode,
    RunningMachine,
    Usage,
)
from sandlot.engine.core.ports import Capturing, Freezing, LayerExporting, LimitReporting, Network, Renaming, Runtime
from sandlot.engine.node import machine_files, processes
from sandlot.engine.node.boot import MachineBoot, StartedMachine
from sandlot.engine.node.checkpoint_store import CheckpointStore
from sandlot.engine.node.envd.client import EnvdClient
from sandlot.engine.node.exits import ExitLog
from sandlot.engine.node.machine_table import LiveMachine, MachineTable
from sandlot.spans import span

log = logging.getLogger(__name__)

SETTLE_S = 0.06  # what gVisor needs to notice that connections were closed; an open one breaks the checkpoint
STARTS_AT_ONCE = 2 * (os.cpu_count() or 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What machines of this host are made with."""

    runtimes: Mapping[str, Runtime]
    network: Network
    boot: MachineBoot
    envd: EnvdClient
    checkpoints: CheckpointStore


class MachineFactory:
    """Machines by the id of their sandbox. `exits` has those that ended by themselves."""

    def __init__(
        self, *, table: MachineTable, parts: Parts, scratch: Path, starts_at_once: int = STARTS_AT_ONCE
    ) -> None:
        self.table, self.exits = table, ExitLog()
        self.runtimes, self._network, self._boot = parts.runtimes, parts.network, parts.boot
        self._envd, self._checkpoints, self._scratch = parts.envd, parts.checkpoints, scratch
        self._starts = asyncio.Semaphore(starts_at_once)
        shutil.rmtree(scratch, ignore_errors=True)  # of a process that was killed while it exported files

    def runtime(self, name: str) -> Runtime:
        try:
            return self.runtimes[name]
        except KeyError:
            have = ", ".join(sorted(self.runtimes)) or "none"
            raise InvalidRequest(f"runtime {name!r} does not work on this node (it has: {have})") from None

    def runtime_of(self, live: LiveMachine) -> Runtime:
        return self.runtimes[live.instance.runtime]

    # -- starting --------------------------------------------------------------------------------------------------

    async def start(self, new: NewMachine, *, boot_snapshot: str | None = None, is_leased: bool = True) -> LiveMachine:
        """A machine that has its identity, all or nothing: from its checkpoint, a boot snapshot, or a cold boot."""
        runtime = self.runtime(new.runtime)
        async with self._starts, self.table.alone(new.sandbox_id):
            try:
                directory = self.table.directory(new.sandbox_id)
                directory.mkdir(mode=0o700)
                started = await self._boot.launch(runtime, new, directory, boot_snapshot)
                await self._boot.settle(runtime, new, started)
                return self._watched(runtime, started, new.envd_token, is_leased=is_leased)
            except BaseException:
                await processes.to_the_end(self.free(new.sandbox_id))
                raise

    async def warm_up(self, live: LiveMachine, new: NewMachine) -> None:
        """Run the machine's first command ahead of time, and keep that out of its sandbox's log."""
        began = (
            live.prepared[0] if live.prepared else datetime.now(UTC) - timedelta(milliseconds=2)
        )  # envd's resolution
        await self._boot.warm_up(new, live.machine.address)
        live.prepared = (began, datetime.now(UTC))
        directory = self.table.directory(live.sandbox_id)
        machine_files.write(directory, machine_files.with_prepared(machine_files.read(directory), live.prepared))

    async def lease(self, live: LiveMachine, new: NewMachine) -> LiveMachine:
        """Give a frozen machine that belongs to nobody to a sandbox: its policy, its identity, and it runs. All or nothing."""
        async with self.table.alone(new.sandbox_id):
            held_token = live.token
            self.table.lease(live, replace(live.machine, sandbox_id=new.sandbox_id))
            live.token = new.envd_token
            try:
                with span("policy"):
                    await asyncio.gather(
                        self._network.apply(live.instance.machine_id, new.network), self._rename(live, new.sandbox_id)
                    )
                with span("thaw"):
                    await self.thaw(new.sandbox_id)
                await self._boot.identify(self.runtime_of(live), new, live.instance, live.machine.address, held_token)
                if live.has_ended:
                    raise MachineFailed(f"the machine of sandbox {new.sandbox_id} has ended")
                live.is_leased = (
                    True  # not sooner: the end of a machine that is of no use is not the end of the sandbox
                )
            except BaseException:
                await processes.to_the_end(self.free(new.sandbox_id))
                raise
            return live

    async def _rename(self, live: LiveMachine, name: str) -> None:
        """Where the guest may not set its host name: while the machine is still frozen, beside other work."""
        if isinstance(runtime := self.runtime_of(live), Renaming):
            await runtime.rename(live.instance, name)

    def _watched(self, runtime: Runtime, started: StartedMachine, token: str | None, *, is_leased: bool) -> LiveMachine:
        return self._watch(
            runtime,
            LiveMachine(
                machine=started.machine,
                instance=started.instance,
                token=token,
                boot=started.boot,
                is_leased=is_leased,
                prepared=started.prepared,
            ),
        )

    def _watch(self, runtime: Runtime, live: LiveMachine) -> LiveMachine:
        async def watch() -> None:
            exit = await runtime.wait(live.instance)
            if live.is_leased:
                self.exits.append(live.sandbox_id, exit)

        live.watcher = asyncio.create_task(watch(), name=f"watch {live.instance.machine_id}")
        return self.table.put(live)

    # -- adopting --------------------------------------------------------------------------------------------------

    async def adopt(self, running: RunningMachine) -> LiveMachine:
        """Know a machine that an earlier process started, from what is written down about it. Raises `NotFound`."""
        sandbox_id = running.sandbox_id
        record = machine_files.read(self.table.directory(sandbox_id))
        if "instance" not in record:
            raise NotFound(f"sandbox {sandbox_id} has no machine on this node")
        runtime, machine_id = self.runtime(running.runtime), self.table.machine_id(sandbox_id)
        await self._network.adopt(machine_id, running.network)
        live = self.table.get(sandbox_id)
        if live is not None and not live.has_ended:
            return live
        return self._watch(
            runtime,
            LiveMachine(
                machine=machine_files.machine(sandbox_id, runtime, record),
                instance=Instance(machine_id=machine_id, runtime=running.runtime, state=record["instance"]),
                token=running.envd_token,
                boot=machine_files.boot_record(record["boot"]),
                prepared=machine_files.prepared(record),
            ),
        )

    async def adopt_if_alive(self, running: RunningMachine) -> LiveMachine | None:
        try:
            live = await self.adopt(running)
        except NotFound:
            return None
        if await self.runtime_of(live).alive(live.instance):
            return live
        await self.unwatch(running.sandbox_id)
        return None

    async def unwatch(self, sandbox_id: str) -> None:
        """Know the machine no longer; it stays."""
        live = self.table.pop(sandbox_id)
        if live is not None and live.watcher is not None:
            live.watcher.cancel()
            await asyncio.gather(live.watcher, return_exceptions=True)

    # -- ending ----------------------------------------------------------------------------------------------------

    async def stop(self, sandbox_id: str) -> None:
        """Free everything that a sandbox, or a machine of none, has on this host. Idempotent."""
        async with self.table.alone(sandbox_id):
            await processes.to_the_end(self.free(sandbox_id))

    async def free(self, sandbox_id: str) -> None:
        """The same for a caller that is alone with the sandbox already."""
        live = self.table.pop(sandbox_id)
        if live is not None and live.watcher is not None:
            live.watcher.cancel()
        machine_id = self.table.machine_id(sandbox_id)
        for runtime, instance in self._instances(
            machine_id, live, machine_files.read(self.table.directory(sandbox_id))
        ):
            await runtime.stop(instance, grace=timedelta(0))
        await self._network.release(machine_id)
        await asyncio.to_thread(self.table.erase, sandbox_id)

    def _instances(
        self, machine_id: str, live: LiveMachine | None, record: Mapping[str, Any]
    ) -> Sequence[tuple[Runtime, Instance]]:
        if live is not None:
            return [(self.runtime_of(live), live.instance)]
        names = [record["runtime"]] if record.get("runtime") in self.runtimes else list(self.runtimes)
        state = record.get("instance", {})
        return [(self.runtimes[name], Instance(machine_id=machine_id, runtime=name, state=state)) for name in names]

    async def close(self) -> None:
        """Stop watching; machines go on."""
        watchers = [live.watcher for live in self.table.live() if live.watcher is not None]
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)

    # -- a running machine -----------------------------------------------------------------------------------------

    async def set_network(self, sandbox_id: str, policy: NetworkPolicy) -> None:
        """In force whatever the guest does: one whose daemon does not answer must not keep a secret that was taken back."""
        live = self.table.known(sandbox_id)
        await self._network.apply(live.instance.machine_id, policy)
        if (authorities := self._network.authorities(policy)) is not None:
            try:
                await self._envd.trust(live.machine.address, live.token, authorities)
            except GuestUnresponsive as error:
                log.warning("programs in sandbox %s may not trust connections that are opened: %s", sandbox_id, error)

    async def is_idle(self, sandbox_id: str) -> bool:
        """Whether nothing but envd runs in it, and it can be frozen. A daemon that does not say so is taken to be busy."""
        live = self.table.known(sandbox_id)
        can_freeze = isinstance(self.runtime_of(live), Freezing)
        return can_freeze and await self._envd.is_idle(live.machine.address, live.token)

    async def freeze(self, sandbox_id: str) -> None:
        live = self.table.known(sandbox_id)
        runtime = self.runtime_of(live)
        if not isinstance(runtime, Freezing):
            raise InvalidRequest(f"machines of runtime {runtime.name!r} cannot be frozen")
        await runtime.freeze(live.instance)

    async def thaw(self, sandbox_id: str) -> None:
        live = self.table.known(sandbox_id)
        runtime = self.runtime_of(live)
        if isinstance(runtime, Freezing):
            await runtime.thaw(live.instance)

    async def usage(self, sandbox_id: str) -> Usage:
        live = self.table.known(sandbox_id)
        return await self.runtime_of(live).usage(live.instance)

    async def limits_hit(self, sandbox_id: str) -> Sequence[str]:
        """Which limits the machine has hit and survived."""
        live = self.table.known(sandbox_id)
        runtime = self.runtime_of(live)
        return await runtime.limits_hit(live.instance) if isinstance(runtime, LimitReporting) else ()

    # -- its state -------------------------------------------------------------------------------------------------

    async def save(
        self, live: LiveMachine, name: str, mode: PauseMode, *, final: bool, lasting: bool = True
    ) -> Checkpoint:
        """Write its state to disk under a name. `final`: the machine is stopped right after."""
        runtime = self.runtime_of(live)
        if not isinstance(runtime, Capturing):
            raise InvalidRequest(f"runtime {runtime.name!r} cannot save the state of a machine")
        facts = machine_files.checkpoint_facts(name, live.instance, live.boot, mode, live.token)
        expected = (await runtime.usage(live.instance)).mem_used if runtime.captures_memory else 0

        async def fill(state: Path) -> None:
            if final and mode is PauseMode.FILESYSTEM and runtime.captures_memory:
                try:
                    await self._envd.halt(live.machine.address, live.token)
                except GuestUnresponsive as error:  # its choice: then its processes are saved with its files
                    log.warning("sandbox %s is paused with its processes: %s", live.sandbox_id, error)
            await asyncio.sleep(SETTLE_S)
            await runtime.capture(live.instance, state, final=final)

        return await self._checkpoints.write(facts, fill, expected_bytes=expected, lasting=lasting)

    async def export_files(self, sandbox_id: str, take: Callable[[Path], Awaitable[None]]) -> None:
        """End a machine, and hand what it wrote to `take` as a directory in the form of a layer."""
        live = self.table.known(sandbox_id)
        runtime = self.runtime_of(live)
        if not isinstance(runtime, LayerExporting):
            raise InvalidRequest(f"runtime {runtime.name!r} cannot export what a machine wrote")
        state = self._scratch / sandbox_id
        async with self.table.alone(sandbox_id):
            try:
                runtime.keep_disk(live.instance, state)
                await processes.to_the_end(self.free(sandbox_id))
                async with runtime.written(state, live.instance.machine_id) as upper:
                    await take(upper)
            finally:
                shutil.rmtree(state, ignore_errors=True)
