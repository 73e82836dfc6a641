"""One host's machines: puts a runtime, a network slot, the template's layers and envd together, and takes them apart again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sandlot.engine.core.errors import (
    EngineError,
    GuestUnresponsive,
    InvalidRequest,
    MachineFailed,
    NotFound,
    StateUnusable,
)
from sandlot.engine.core.model import (
    Checkpoint,
    Exit,
    LogEntry,
    Machine,
    NetworkPolicy,
    NewMachine,
    PauseMode,
    Sandbox,
    Usage,
)
from sandlot.engine.core.ports import Capturing, Freezing, LimitReporting, Network, Runtime
from sandlot.engine.node import machine_files as records
from sandlot.engine.node import processes
from sandlot.engine.node.boot import Guest, Started, Starts, boots_too, captures_memory
from sandlot.engine.node.boot_snapshots import BootSnapshots, is_seed
from sandlot.engine.node.checkpoint_store import Checkpoints
from sandlot.engine.node.checkpoints import SavedStates
from sandlot.engine.node.ended_logs import EndedLogs
from sandlot.engine.node.envd.client import EnvdClient
from sandlot.engine.node.envd.commands import CommandClient
from sandlot.engine.node.idle_freezer import IdleFreezer
from sandlot.engine.node.machines import Live, Machines
from sandlot.engine.node.warm_pool import Plan, Pool
from sandlot.spans import span

log = logging.getLogger(__name__)

LOGS_AT_STOP_S = 0.5
REST_LOOK = timedelta(minutes=1)


class LocalNode:
    """The node of the machine this process runs on."""

    def __init__(
        self,
        *,
        name: str,
        data_dir: Path,
        layers_dir: Path,
        guest: Guest,
        runtimes: Mapping[str, Runtime],
        network: Network,
        envd: EnvdClient,
        commands: CommandClient | None = None,
        checkpoint_limit_bytes: int = 1 << 40,
        keep_logs: timedelta = timedelta(hours=24),
        standby: Plan = Plan(),  # noqa: B008
        most_seeds: int = 0,
        starts_at_once: int = 2 * (os.cpu_count() or 2),
        idle_freeze_s: float = 0,
    ) -> None:
        self.name = name
        self.stillness = IdleFreezer(
            is_idle=self._is_idle, freeze=self._hold_still, thaw=self._let_run, patience_s=idle_freeze_s
        )
        self._logbook = EndedLogs(data_dir / "logs")
        self._checkpoints = Checkpoints(data_dir / "checkpoints", checkpoint_limit_bytes)
        self._guest = guest
        self._network = network
        self._envd = envd
        self._machine_starts = Starts(
            layers_dir=layers_dir,
            guest=guest,
            network=network,
            envd=envd,
            commands=commands,
            checkpoints=self._checkpoints,
        )
        self._machines = Machines(
            node=name, directory=data_dir / "sandboxes", runtimes=runtimes, network=network, ended=self._ended
        )
        self.states = SavedStates(
            machines=self._machines,
            checkpoints=self._checkpoints,
            envd=envd,
            awake=self.stillness.awake,
            last_words=self._save_logs,
            start=self.start,
            scratch=data_dir / "taken",
        )
        self._keep_logs = keep_logs
        self.pool = Pool(prepare=self._prepare, discard=self._discard, plan=standby)
        self.seeds = BootSnapshots(
            checkpoints=self._checkpoints,
            guest=guest.directory.name,
            layers_dir=layers_dir,
            sow=self._sow,
            most=most_seeds,
            programs=self._programs,
        )
        self._make_id = standby.make_id
        self._sowing: set[str] = set()
        self._starts = asyncio.Semaphore(starts_at_once)
        self._callbacks: list[Callable[[str, Exit], Awaitable[None]]] = []

    def on_exit(self, callback: Callable[[str, Exit], Awaitable[None]]) -> None:
        self._callbacks.append(callback)

    async def _ended(self, sandbox_id: str, ended: Exit) -> None:
        """A machine ended by itself."""
        if self.pool.lost(sandbox_id) or sandbox_id in self._sowing:
            return
        log.warning("machine of sandbox %s ended by itself: %s", sandbox_id, ended.reason)
        for callback in self._callbacks:
            await callback(sandbox_id, ended)

    # -- a machine's life ------------------------------------------------------------------------------------------

    async def start(self, new: NewMachine) -> Machine:
        runtime = self._machines.runtime(new.runtime)
        with self.pool.yielding():
            machine = await self._handed_out(runtime, new)
            if machine is not None:
                return machine
            async with self._starts, self._machines.whole(new.sandbox_id):
                started = await self._start_somehow(runtime, new)
                return self._machines.watched(runtime, started, new.envd_token).machine

    async def _start_somehow(self, runtime: Runtime, new: NewMachine) -> Started:
        """A machine that knows who it is: from the template's saved state or a seed, and where that is no good by booting."""
        seed = await self._seed(runtime, new)
        try:
            return await self._start(runtime, new, seed)
        except (StateUnusable, MachineFailed) as error:
            if seed is None and not boots_too(new):
                raise
            log.warning(
                "sandbox %s boots, because the saved state of template %s cannot be used: %s",
                *(new.sandbox_id, new.template.name, error),
            )
        await processes.to_the_end(self._machines.undo(new.sandbox_id))
        if seed is not None:
            await self.seeds.spoiled(seed)
        return await self._start(runtime, replace(new, checkpoint=None))

    async def _seed(self, runtime: Runtime, new: NewMachine) -> str | None:
        if not isinstance(runtime, Capturing) or not runtime.captures_memory:
            return None
        return self.seeds.find(new, await runtime.program())

    async def _start(self, runtime: Runtime, new: NewMachine, seed: str | None = None) -> Started:
        directory = self._machines.directory(new.sandbox_id)
        directory.mkdir(mode=0o700)
        started = await self._machine_starts.begin(runtime, new, directory, seed=seed)
        await self._machine_starts.settle_in(runtime, new, started)
        return started

    async def _programs(self) -> Collection[str]:
        """What writes memory now, by content."""
        runtimes = self._machines.runtimes.values()
        return {await each.program() for each in runtimes if isinstance(each, Capturing) and each.captures_memory}

    async def _sow(self, like: NewMachine, name: str) -> None:
        """Boot a machine that nobody asked for, and keep its state as a seed."""
        new = replace(like, sandbox_id=self._make_id(), envd_token=secrets.token_hex(32))
        runtime = self._machines.runtime(new.runtime)
        self._sowing.add(new.sandbox_id)
        try:
            async with self._starts, self._machines.whole(new.sandbox_id):
                started = await self._start(runtime, new)
                await self._machine_starts.warm_up(new, started)
                live = self._machines.watched(runtime, started, new.envd_token)
                await self.states.save(runtime, live, name, PauseMode.FULL, final=True)
                await processes.to_the_end(self._machines.undo(new.sandbox_id))
        finally:
            self._sowing.discard(new.sandbox_id)

    # -- machines that stand ready ---------------------------------------------------------------------------------

    def reserve(self, wish: NewMachine) -> str | None:
        return self.pool.take(wish)

    def unreserve(self, sandbox_id: str) -> None:
        self.pool.put_back(sandbox_id)

    async def _prepare(self, new: NewMachine) -> int:
        """Start a machine that has no sandbox yet, and hold it still; what it takes of the host's memory."""
        runtime = self._machines.runtime(new.runtime)
        if not isinstance(runtime, Freezing):
            raise InvalidRequest(f"machines of runtime {runtime.name!r} cannot be held still")
        async with self._starts, self._machines.whole(new.sandbox_id):
            started = await self._start_somehow(runtime, new)
            hidden = await self._machine_starts.warm_up(new, started)
            directory = self._machines.directory(new.sandbox_id)
            records.write(directory, records.hide(records.read(directory), hidden))
            self._machines.watched(runtime, started, new.envd_token).hidden = hidden
            await runtime.freeze(started.instance)
            return (await runtime.usage(started.instance)).mem_used

    async def _handed_out(self, runtime: Runtime, new: NewMachine) -> Machine | None:
        """The machine that was reserved for this sandbox, with its identity. None: there is none that works."""
        try:
            async with self._machines.whole(new.sandbox_id):
                held_token = self.pool.promised(new.sandbox_id)
                if held_token is None:
                    return None
                try:
                    with span("ready"):
                        return await self._hand_out(runtime, new, held_token)
                finally:  # not sooner: the end of a machine that is of no use is not the end of the sandbox
                    self.pool.release(new.sandbox_id)
        except EngineError as error:
            log.warning("a machine that stood ready is of no use (%s); another is started", error)
            return None

    async def _hand_out(self, runtime: Runtime, new: NewMachine, held_token: str) -> Machine:
        live = self._machines.known(new.sandbox_id)
        with span("policy"):
            await self._network.apply(new.sandbox_id, new.network)
        if isinstance(runtime, Freezing):
            with span("thaw"):
                await runtime.thaw(live.instance)
        await self._machine_starts.introduce(runtime, new, live.instance, live.machine.address, held_token)
        if live.watcher.done():
            raise NotFound(f"the machine of sandbox {new.sandbox_id} has ended")
        live.token = new.envd_token
        return live.machine

    async def template_changed(self, template_id: str) -> None:
        """The template is gone, or is another one now: what was prepared for it goes."""
        await self.seeds.forget(template_id)
        await self.pool.drain(template_id)

    async def _discard(self, sandbox_id: str) -> None:
        async with self._machines.alone(sandbox_id):
            await processes.to_the_end(self._machines.undo(sandbox_id))

    # -- taking over, ending ---------------------------------------------------------------------------------------

    async def adopt(self, sandbox: Sandbox) -> None:
        if sandbox.machine is None:
            raise NotFound(f"sandbox {sandbox.id} has no machine on node {self.name}")
        await self._machines.take_over(sandbox.id, sandbox.runtime, sandbox.network, sandbox.envd_token)
        await self._let_run(sandbox.id)  # the earlier process may have held it still

    async def stop(self, sandbox_id: str) -> None:
        async with self._machines.alone(sandbox_id), self.stillness.awake(sandbox_id):
            await self._save_logs(sandbox_id)
            await self._machines.undo(sandbox_id)
            await self._checkpoints.remove(sandbox_id)

    # -- saved states ----------------------------------------------------------------------------------------------

    async def pause(self, sandbox_id: str, *, memory: bool) -> PauseMode:
        return await self.states.pause(sandbox_id, memory=memory)

    async def resume(self, new: NewMachine) -> Machine:
        return await self.states.resume(new)

    async def recover(self, new: NewMachine) -> Machine | PauseMode:
        return await self.states.recover(new)

    async def capture(self, sandbox_id: str, name: str, *, memory: bool, lasting: bool = True) -> Checkpoint:
        return await self.states.capture(sandbox_id, name, memory=memory, lasting=lasting)

    def keeps_memory(self, runtime: str) -> bool:
        """Whether states that this runtime captures hold memory too."""
        return captures_memory(self._machines.runtime(runtime))

    async def layers_in_use(self) -> set[str]:
        """Layers that machines and saved states of this host need."""
        found = {layer for record in self._machines.written() for layer in record.get("begun", {}).get("layers", ())}
        saved = [each for name, each in (await self.checkpoints()).items() if not is_seed(name)]
        return found | {layer for each in saved for layer in each.layers}

    async def checkpoints(self) -> Mapping[str, Checkpoint]:
        return await asyncio.to_thread(self._checkpoints.all)

    async def discard(self, name: str) -> None:
        await self._checkpoints.remove(name)

    # -- what the host has -----------------------------------------------------------------------------------------

    async def machines(self) -> Sequence[Machine]:
        found: list[Machine] = []
        for runtime in self._machines.runtimes.values():
            for instance in await runtime.instances():
                if instance.sandbox_id in self._nobodys() or not await runtime.alive(instance):
                    continue
                record = records.read(self._machines.directory(instance.sandbox_id))
                found.append(records.machine(instance.sandbox_id, runtime, record))
        return found

    async def sweep(self, keep: Collection[str]) -> Sequence[str]:
        await asyncio.to_thread(self._logbook.purge, self._keep_logs)
        ids = self._machines.on_disk() | set(await self._network.claims())
        for runtime in self._machines.runtimes.values():
            ids |= {instance.sandbox_id for instance in await runtime.instances()}
        ids |= {name for name in self._checkpoints.names() if not is_seed(name)}
        ours = self._nobodys()
        stray = sorted(id for id in ids if id not in keep and not self._machines.in_motion(id) and id not in ours)
        freed = []
        for sandbox_id in stray:
            try:
                await self.stop(sandbox_id)
                freed.append(sandbox_id)
            except EngineError as error:
                log.error("could not free what is left of sandbox %s: %s", sandbox_id, error)
        await self.seeds.tidy()
        await asyncio.to_thread(self._forget_unneeded)
        return freed

    def _nobodys(self) -> frozenset[str]:
        """Machines that have no sandbox, and are to be there."""
        return self.pool.ids() | self._sowing

    def _forget_unneeded(self) -> None:
        """Guest runtimes and programs of earlier versions stay for as long as a machine or a saved state needs them."""
        written = self._machines.written()
        saved = self._checkpoints.all().values()
        guests = {state.guest for state in saved} | {record.get("begun", {}).get("guest") for record in written}
        for path in self._guest.directory.parent.glob("[0-9a-f]*"):
            if path != self._guest.directory and path.name not in guests:
                shutil.rmtree(path, ignore_errors=True)
        programs = {state.program for state in saved} | {
            record.get("instance", {}).get("program") for record in written
        }
        for runtime in self._machines.runtimes.values():
            if isinstance(runtime, Capturing):
                runtime.keep_programs({each for each in programs if each})

    def saved_bytes(self) -> int:
        """What saved states take on this host's disk."""
        return self._checkpoints.used_bytes()

    # -- a running machine -----------------------------------------------------------------------------------------

    async def set_network(self, sandbox_id: str, policy: NetworkPolicy) -> None:
        await self._network.apply(sandbox_id, policy)

    async def usage(self, sandbox_id: str) -> Usage:
        """What the machine uses now. One that is held still is looked at less often: little changes but what the host writes back."""
        live = self._machines.known(sandbox_id)
        rests_since = self.stillness.rests_since(sandbox_id)
        if rests_since is None:
            return await self._machines.of(live).usage(live.instance)
        now = datetime.now(UTC)
        if live.at_rest is None or live.at_rest[0] != rests_since or now - live.at_rest[1].at > REST_LOOK:
            live.at_rest = (rests_since, await self._machines.of(live).usage(live.instance))
        return replace(live.at_rest[1], at=now, cpu_used_pct=0.0)

    async def _is_idle(self, sandbox_id: str) -> bool:
        live = self._machines.known(sandbox_id)
        can_rest = isinstance(self._machines.of(live), Freezing)
        return can_rest and await self._envd.is_idle(live.machine.address, live.token)

    async def _hold_still(self, sandbox_id: str) -> None:
        live = self._machines.known(sandbox_id)
        runtime = self._machines.of(live)
        if isinstance(runtime, Freezing):
            await runtime.freeze(live.instance)

    async def _let_run(self, sandbox_id: str) -> None:
        live = self._machines.known(sandbox_id)
        runtime = self._machines.of(live)
        if isinstance(runtime, Freezing):
            await runtime.thaw(live.instance)

    async def relay_port(self, sandbox_id: str, port: int) -> int | None:
        live = self._machines.known(sandbox_id)
        async with self.stillness.awake(sandbox_id):
            return await self._envd.relay(live.machine.address, live.token, port)

    async def logs(self, sandbox_id: str) -> Sequence[LogEntry]:
        live = self._machines.get(sandbox_id)
        if live is not None:
            async with self.stillness.awake(sandbox_id):
                return await self._live_logs(live)
        return await asyncio.to_thread(self._logbook.read, sandbox_id)

    async def _live_logs(self, live: Live) -> Sequence[LogEntry]:
        """What the daemon says, and last what the host knows better: which limits the guest ran into."""
        said = await self._envd.logs(live.machine.address, live.token)
        if live.hidden is not None:
            first, last = live.hidden
            said = [entry for entry in said if not first <= entry.at <= last]
        now = datetime.now(UTC)
        return [*said, *(LogEntry(at=now, message=each, level="error") for each in await self._limits_hit(live))]

    async def limits_hit(self, sandbox_id: str) -> Sequence[str]:
        """Which limits the machine ran into and lived on."""
        return await self._limits_hit(self._machines.known(sandbox_id))

    async def _limits_hit(self, live: Live) -> Sequence[str]:
        runtime = self._machines.of(live)
        return await runtime.limits_hit(live.instance) if isinstance(runtime, LimitReporting) else ()

    async def _save_logs(self, sandbox_id: str) -> None:
        """Save what the daemon logged before the machine goes; a daemon that is slow to answer loses them."""
        live = self._machines.get(sandbox_id)
        if live is None or live.watcher.done():
            return
        with contextlib.suppress(TimeoutError, GuestUnresponsive):
            entries = await asyncio.wait_for(self._live_logs(live), LOGS_AT_STOP_S)
            if entries:
                await asyncio.to_thread(self._logbook.keep, sandbox_id, entries)

    async def close(self) -> None:
        """Stop watching; machines go on."""
        await self._machines.close()
