"""One host's machines: puts a runtime, a network slot, the template's layers and envd together, and takes them apart again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sandlot.engine import machine_records as records
from sandlot.engine import processes
from sandlot.engine.checkpoints import Checkpoints
from sandlot.engine.commands import CommandClient
from sandlot.engine.envd import EnvdClient
from sandlot.engine.errors import EngineError, GuestUnresponsive, InvalidRequest, MachineFailed, NotFound, StateUnusable
from sandlot.engine.logbook import Logbook
from sandlot.engine.machine_starts import Guest, Started, Starts, boots_too, captures_memory
from sandlot.engine.model import (
    Checkpoint,
    Exit,
    Instance,
    LogEntry,
    Machine,
    NetworkPolicy,
    NewMachine,
    PauseMode,
    Sandbox,
    Usage,
)
from sandlot.engine.pool import Plan, Pool
from sandlot.engine.ports import Capturing, Freezing, Layering, Network, Runtime, Telling
from sandlot.engine.seeds import Seeds, is_seed
from sandlot.engine.spans import span
from sandlot.engine.stillness import Stillness

log = logging.getLogger(__name__)

LOGS_AT_STOP_S = 0.5
SETTLE_S = 0.06  # what gVisor needs to notice that connections were closed; one that it has not breaks the saved state


@dataclass(slots=True, kw_only=True)
class _Live:
    """What this process knows of a machine it started or adopted; the host has everything but the token."""

    machine: Machine
    instance: Instance
    token: str | None
    watcher: asyncio.Task[None]
    begun: records.Begun
    hidden: records.Window | None = None


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
        self.stillness = Stillness(
            is_idle=self._is_idle, freeze=self._hold_still, thaw=self._let_run, patience_s=idle_freeze_s
        )
        self._sandboxes_dir = data_dir / "sandboxes"
        self._logbook = Logbook(data_dir / "logs")
        self._checkpoints = Checkpoints(data_dir / "checkpoints", checkpoint_limit_bytes)
        self._guest = guest
        self._runtimes = runtimes
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
        self._taken_dir = data_dir / "taken"
        self._keep_logs = keep_logs
        self.pool = Pool(prepare=self._prepare, discard=self._discard, plan=standby)
        self.seeds = Seeds(
            checkpoints=self._checkpoints,
            guest=guest.directory.name,
            layers_dir=layers_dir,
            sow=self._sow,
            most=most_seeds,
        )
        self._make_id = standby.make_id
        self._sowing: set[str] = set()
        self._live: dict[str, _Live] = {}
        self._acts: dict[str, tuple[asyncio.Lock, int]] = {}
        self._starts = asyncio.Semaphore(starts_at_once)
        self._callbacks: list[Callable[[str, Exit], Awaitable[None]]] = []
        self._sandboxes_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.rmtree(self._taken_dir, ignore_errors=True)  # of a process that was killed while it took files

    def on_exit(self, callback: Callable[[str, Exit], Awaitable[None]]) -> None:
        self._callbacks.append(callback)

    # -- a machine's life ------------------------------------------------------------------------------------------

    async def start(self, new: NewMachine) -> Machine:
        runtime = self._runtime(new.runtime)
        with self.pool.yielding():
            machine = await self._handed_out(runtime, new)
            if machine is not None:
                return machine
            async with self._starts, self._whole(new.sandbox_id):
                started = await self._start_somehow(runtime, new)
                return self._watched(runtime, started, new.envd_token).machine

    @contextlib.asynccontextmanager
    async def _whole(self, sandbox_id: str) -> AsyncIterator[None]:
        """Alone with a machine that is to be there when this ends well, and gone when it does not: also on cancellation."""
        async with self._alone(sandbox_id):
            try:
                yield
            except BaseException:
                await processes.to_the_end(self._undo(sandbox_id))
                raise

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
        await processes.to_the_end(self._undo(new.sandbox_id))
        if seed is not None:
            await self.seeds.spoiled(seed)
        return await self._start(runtime, replace(new, checkpoint=None))

    async def _seed(self, runtime: Runtime, new: NewMachine) -> str | None:
        if not isinstance(runtime, Capturing) or not runtime.captures_memory:
            return None
        return self.seeds.find(new, await runtime.program())

    async def _start(self, runtime: Runtime, new: NewMachine, seed: str | None = None) -> Started:
        directory = self._directory(new.sandbox_id)
        directory.mkdir(mode=0o700)
        started = await self._machine_starts.begin(runtime, new, directory, seed=seed)
        await self._machine_starts.settle_in(runtime, new, started)
        return started

    async def _sow(self, like: NewMachine, name: str) -> None:
        """Boot a machine that nobody asked for, and keep its state as a seed."""
        new = replace(like, sandbox_id=self._make_id(), envd_token=secrets.token_hex(32))
        runtime = self._runtime(new.runtime)
        self._sowing.add(new.sandbox_id)
        try:
            async with self._starts, self._whole(new.sandbox_id):
                started = await self._start(runtime, new)
                await self._machine_starts.warm_up(new, started)
                live = self._watched(runtime, started, new.envd_token)
                await self._capture(runtime, live, name, PauseMode.FULL, final=True)
                await processes.to_the_end(self._undo(new.sandbox_id))
        finally:
            self._sowing.discard(new.sandbox_id)

    def _watched(self, runtime: Runtime, started: Started, token: str | None) -> _Live:
        live = self._live[started.instance.sandbox_id] = _Live(
            machine=started.machine,
            instance=started.instance,
            token=token,
            watcher=self._watch(runtime, started.instance),
            begun=started.begun,
            hidden=started.hidden,
        )
        return live

    # -- machines that stand ready ---------------------------------------------------------------------------------

    def reserve(self, wish: NewMachine) -> str | None:
        return self.pool.take(wish)

    def unreserve(self, sandbox_id: str) -> None:
        self.pool.put_back(sandbox_id)

    async def _prepare(self, new: NewMachine) -> int:
        """Start a machine that has no sandbox yet, and hold it still; what it takes of the host's memory."""
        runtime = self._runtime(new.runtime)
        if not isinstance(runtime, Freezing):
            raise InvalidRequest(f"machines of runtime {runtime.name!r} cannot be held still")
        async with self._starts, self._whole(new.sandbox_id):
            started = await self._start_somehow(runtime, new)
            hidden = await self._machine_starts.warm_up(new, started)
            directory = self._directory(new.sandbox_id)
            records.write(directory, records.hide(records.read(directory), hidden))
            self._watched(runtime, started, new.envd_token).hidden = hidden
            await runtime.freeze(started.instance)
            return (await runtime.usage(started.instance)).mem_used

    async def _handed_out(self, runtime: Runtime, new: NewMachine) -> Machine | None:
        """The machine that was reserved for this sandbox, with its identity. None: there is none that works."""
        try:
            async with self._whole(new.sandbox_id):
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
        live = self._known(new.sandbox_id)
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
        async with self._alone(sandbox_id):
            await processes.to_the_end(self._undo(sandbox_id))

    # -- taking over, ending ---------------------------------------------------------------------------------------

    async def adopt(self, sandbox: Sandbox) -> None:
        if sandbox.machine is None:
            raise NotFound(f"sandbox {sandbox.id} has no machine on node {self.name}")
        await self._take_over(sandbox.id, sandbox.runtime, sandbox.network, sandbox.envd_token)
        await self._let_run(sandbox.id)  # the earlier process may have held it still

    async def _take_over(self, sandbox_id: str, runtime_name: str, policy: NetworkPolicy, token: str | None) -> _Live:
        """Know a machine that an earlier process started, from what is written down about it."""
        record = records.read(self._directory(sandbox_id))
        if "instance" not in record:
            raise NotFound(f"sandbox {sandbox_id} has no machine on node {self.name}")
        runtime = self._runtime(runtime_name)
        instance = Instance(sandbox_id=sandbox_id, runtime=runtime_name, state=record["instance"])
        await self._network.adopt(sandbox_id, policy)
        live = self._live.get(sandbox_id)
        if live is None or live.watcher.done():
            live = self._live[sandbox_id] = _Live(
                machine=records.machine(sandbox_id, runtime, record),
                instance=instance,
                token=token,
                watcher=self._watch(runtime, instance),
                begun=records.begun(record["begun"]),
                hidden=records.hidden(record),
            )
        return live

    async def stop(self, sandbox_id: str) -> None:
        async with self._alone(sandbox_id), self.stillness.awake(sandbox_id):
            await self._save_logs(sandbox_id)
            await self._undo(sandbox_id)
            await self._checkpoints.remove(sandbox_id)

    async def _undo(self, sandbox_id: str) -> None:
        """Free everything under this id, whatever of it exists."""
        live = self._live.pop(sandbox_id, None)
        if live is not None:
            live.watcher.cancel()
        directory = self._directory(sandbox_id)
        for runtime, instance in self._instances_of(sandbox_id, live, records.read(directory)):
            await runtime.stop(instance, grace=timedelta(0))
        await self._network.release(sandbox_id)
        if directory.exists():
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)

    def _instances_of(
        self, sandbox_id: str, live: _Live | None, record: Mapping[str, Any]
    ) -> Sequence[tuple[Runtime, Instance]]:
        if live is not None:
            return [(self._runtimes[live.instance.runtime], live.instance)]
        names = [record["runtime"]] if record.get("runtime") in self._runtimes else list(self._runtimes)
        state = record.get("instance", {})
        return [(self._runtimes[name], Instance(sandbox_id=sandbox_id, runtime=name, state=state)) for name in names]

    def _watch(self, runtime: Runtime, instance: Instance) -> asyncio.Task[None]:
        async def watch() -> None:
            ended = await runtime.wait(instance)
            if self.pool.lost(instance.sandbox_id) or instance.sandbox_id in self._sowing:
                return
            log.warning("machine of sandbox %s ended by itself: %s", instance.sandbox_id, ended.reason)
            for callback in self._callbacks:
                await callback(instance.sandbox_id, ended)

        return asyncio.create_task(watch(), name=f"watch {instance.sandbox_id}")

    # -- saved states ----------------------------------------------------------------------------------------------

    async def pause(self, sandbox_id: str, *, memory: bool) -> PauseMode:
        live = self._known(sandbox_id)
        runtime = self._runtimes[live.instance.runtime]
        mode = PauseMode.FULL if memory else PauseMode.FILESYSTEM
        async with self._alone(sandbox_id), self.stillness.awake(sandbox_id):
            await self._save_logs(sandbox_id)
            if memory and not captures_memory(runtime):  # memory is kept by standing still; the files are kept besides
                if not isinstance(runtime, Freezing):
                    raise InvalidRequest(f"runtime {runtime.name!r} cannot pause")
                await runtime.freeze(live.instance)
                await self._capture(runtime, live, sandbox_id, mode, final=True)
                await self._unwatch(sandbox_id)
            else:
                await self._capture(runtime, live, sandbox_id, mode, final=True)
                await processes.to_the_end(self._undo(sandbox_id))
            return mode

    async def capture(self, sandbox_id: str, name: str, *, memory: bool, lasting: bool = True) -> Checkpoint:
        live = self._known(sandbox_id)
        runtime = self._runtimes[live.instance.runtime]
        mode = PauseMode.FULL if memory and captures_memory(runtime) else PauseMode.FILESYSTEM
        async with self._alone(sandbox_id), self.stillness.awake(sandbox_id):
            return await self._capture(runtime, live, name, mode, final=False, lasting=lasting)

    async def _capture(
        self, runtime: Runtime, live: _Live, name: str, mode: PauseMode, *, final: bool, lasting: bool = True
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

    def keeps_memory(self, runtime: str) -> bool:
        """Whether states that this runtime captures hold memory too."""
        return captures_memory(self._runtime(runtime))

    async def layers_in_use(self) -> set[str]:
        """Layers that machines and saved states of this host need."""
        written = [records.read(path) for path in self._sandboxes_dir.iterdir()]
        found = {layer for record in written for layer in record.get("begun", {}).get("layers", ())}
        saved = [each for name, each in (await self.checkpoints()).items() if not is_seed(name)]
        return found | {layer for each in saved for layer in each.layers}

    async def take_files(self, sandbox_id: str, take: Callable[[Path], Awaitable[None]]) -> None:
        """End a machine, and hand out what it wrote as a directory in the form of a layer. The machine is gone after it."""
        live = self._known(sandbox_id)
        runtime = self._runtimes[live.instance.runtime]
        if not isinstance(runtime, Capturing) or not isinstance(runtime, Layering):
            raise InvalidRequest(f"runtime {runtime.name!r} cannot hand out what a machine wrote")
        taken = self._taken_dir / sandbox_id
        async with self._alone(sandbox_id):
            try:
                await runtime.capture(live.instance, taken, final=True)
                await processes.to_the_end(self._undo(sandbox_id))
                async with runtime.written(taken, sandbox_id) as upper:
                    await take(upper)
            finally:
                shutil.rmtree(taken, ignore_errors=True)

    async def resume(self, new: NewMachine) -> Machine:
        saved = self._checkpoints.get(new.sandbox_id)
        if saved is not None and self._stands_still(saved):
            if new.memory:
                return await self._thaw(new)
            async with self._alone(new.sandbox_id):
                await processes.to_the_end(self._undo(new.sandbox_id))
        machine = await self.start(replace(new, checkpoint=new.sandbox_id))
        await self._checkpoints.remove(new.sandbox_id)  # it is older than the machine from now on
        return machine

    def _stands_still(self, saved: Checkpoint) -> bool:
        """Whether the memory that goes with this state is where the machine is, if it is anywhere."""
        return saved.mode is PauseMode.FULL and not captures_memory(self._runtime(saved.runtime))

    async def _thaw(self, new: NewMachine) -> Machine:
        """Let a machine that stands still go on. One whose host was restarted meanwhile has only its files left."""
        async with self._alone(new.sandbox_id):
            live = await self._if_alive(new)
            if live is None:
                raise StateUnusable(
                    f"the memory of sandbox {new.sandbox_id} did not outlive a restart of its host; its files did: "
                    "resume it without memory (connect with memory=false)"
                )
            return await self._let_go(new, live)

    async def _let_go(self, new: NewMachine, live: _Live) -> Machine:
        runtime = self._runtime(new.runtime)
        if isinstance(runtime, Freezing):
            await runtime.thaw(live.instance)
        await self._checkpoints.remove(new.sandbox_id)
        return live.machine

    async def _if_alive(self, new: NewMachine) -> _Live | None:
        try:
            live = await self._take_over(new.sandbox_id, new.runtime, new.network, new.envd_token)
        except NotFound:
            return None
        if await self._runtime(new.runtime).alive(live.instance):
            return live
        await self._unwatch(new.sandbox_id)
        return None

    async def _unwatch(self, sandbox_id: str) -> None:
        live = self._live.pop(sandbox_id, None)
        if live is not None:
            live.watcher.cancel()
            await asyncio.gather(live.watcher, return_exceptions=True)

    async def recover(self, new: NewMachine) -> Machine | PauseMode:
        async with self._alone(new.sandbox_id):
            saved = self._checkpoints.get(new.sandbox_id)
            if saved is None or self._stands_still(saved):
                live = await self._if_alive(new)
                if live is not None:
                    return await self._let_go(new, live)
            if saved is None:
                raise NotFound(f"nothing is left of sandbox {new.sandbox_id} on node {self.name!r}")
            # What is saved is whole. A machine beside it was not yet ended, or not yet told who it is.
            await processes.to_the_end(self._undo(new.sandbox_id))
            return saved.mode

    async def checkpoints(self) -> Mapping[str, Checkpoint]:
        return await asyncio.to_thread(self._checkpoints.all)

    async def discard(self, name: str) -> None:
        await self._checkpoints.remove(name)

    # -- what the host has -----------------------------------------------------------------------------------------

    async def machines(self) -> Sequence[Machine]:
        found: list[Machine] = []
        for runtime in self._runtimes.values():
            for instance in await runtime.instances():
                if instance.sandbox_id in self._nobodys() or not await runtime.alive(instance):
                    continue
                record = records.read(self._directory(instance.sandbox_id))
                found.append(records.machine(instance.sandbox_id, runtime, record))
        return found

    async def sweep(self, keep: Collection[str]) -> Sequence[str]:
        await asyncio.to_thread(self._logbook.purge, self._keep_logs)
        ids = {path.name for path in self._sandboxes_dir.iterdir()} | set(await self._network.claims())
        for runtime in self._runtimes.values():
            ids |= {instance.sandbox_id for instance in await runtime.instances()}
        ids |= {name for name in self._checkpoints.names() if not is_seed(name)}
        ours = self._nobodys()
        stray = sorted(id for id in ids if id not in keep and id not in self._acts and id not in ours)
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
        written = [records.read(path) for path in self._sandboxes_dir.iterdir()]
        saved = self._checkpoints.all().values()
        guests = {state.guest for state in saved} | {record.get("begun", {}).get("guest") for record in written}
        for path in self._guest.directory.parent.glob("[0-9a-f]*"):
            if path != self._guest.directory and path.name not in guests:
                shutil.rmtree(path, ignore_errors=True)
        programs = {state.program for state in saved} | {
            record.get("instance", {}).get("program") for record in written
        }
        for runtime in self._runtimes.values():
            if isinstance(runtime, Capturing):
                runtime.keep_programs({each for each in programs if each})

    def saved_bytes(self) -> int:
        """What saved states take on this host's disk."""
        return self._checkpoints.used_bytes()

    # -- a running machine -----------------------------------------------------------------------------------------

    async def set_network(self, sandbox_id: str, policy: NetworkPolicy) -> None:
        await self._network.apply(sandbox_id, policy)

    async def usage(self, sandbox_id: str) -> Usage:
        live = self._known(sandbox_id)
        return await self._runtimes[live.instance.runtime].usage(live.instance)

    async def _is_idle(self, sandbox_id: str) -> bool:
        live = self._known(sandbox_id)
        can_rest = isinstance(self._runtimes[live.instance.runtime], Freezing)
        return can_rest and await self._envd.is_idle(live.machine.address, live.token)

    async def _hold_still(self, sandbox_id: str) -> None:
        live = self._known(sandbox_id)
        runtime = self._runtimes[live.instance.runtime]
        if isinstance(runtime, Freezing):
            await runtime.freeze(live.instance)

    async def _let_run(self, sandbox_id: str) -> None:
        live = self._known(sandbox_id)
        runtime = self._runtimes[live.instance.runtime]
        if isinstance(runtime, Freezing):
            await runtime.thaw(live.instance)

    async def relay_port(self, sandbox_id: str, port: int) -> int | None:
        live = self._known(sandbox_id)
        async with self.stillness.awake(sandbox_id):
            return await self._envd.relay(live.machine.address, live.token, port)

    async def logs(self, sandbox_id: str) -> Sequence[LogEntry]:
        live = self._live.get(sandbox_id)
        if live is not None:
            async with self.stillness.awake(sandbox_id):
                return await self._live_logs(live)
        return await asyncio.to_thread(self._logbook.read, sandbox_id)

    async def _live_logs(self, live: _Live) -> Sequence[LogEntry]:
        """What the daemon says, and last what the host knows better: which limits the guest ran into."""
        said = await self._envd.logs(live.machine.address, live.token)
        if live.hidden is not None:
            first, last = live.hidden
            said = [entry for entry in said if not first <= entry.at <= last]
        now = datetime.now(UTC)
        return [*said, *(LogEntry(at=now, message=each, level="error") for each in await self._troubles(live))]

    async def troubles(self, sandbox_id: str) -> Sequence[str]:
        """Which limits the machine ran into and lived on."""
        return await self._troubles(self._known(sandbox_id))

    async def _troubles(self, live: _Live) -> Sequence[str]:
        runtime = self._runtimes[live.instance.runtime]
        return await runtime.troubles(live.instance) if isinstance(runtime, Telling) else ()

    async def _save_logs(self, sandbox_id: str) -> None:
        """Save what the daemon logged before the machine goes; a daemon that is slow to answer loses them."""
        live = self._live.get(sandbox_id)
        if live is None or live.watcher.done():
            return
        with contextlib.suppress(TimeoutError, GuestUnresponsive):
            entries = await asyncio.wait_for(self._live_logs(live), LOGS_AT_STOP_S)
            if entries:
                await asyncio.to_thread(self._logbook.keep, sandbox_id, entries)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _runtime(self, name: str) -> Runtime:
        try:
            return self._runtimes[name]
        except KeyError:
            have = ", ".join(sorted(self._runtimes)) or "none"
            raise InvalidRequest(f"runtime {name!r} does not work on node {self.name!r} (it has: {have})") from None

    def _known(self, sandbox_id: str) -> _Live:
        live = self._live.get(sandbox_id)
        if live is None:
            raise NotFound(f"sandbox {sandbox_id} has no machine on node {self.name!r}")
        return live

    def _directory(self, sandbox_id: str) -> Path:
        return self._sandboxes_dir / sandbox_id

    @contextlib.asynccontextmanager
    async def _alone(self, sandbox_id: str) -> AsyncIterator[None]:
        """One act at a time per sandbox; an id with an entry in `_acts` is in motion."""
        lock, users = self._acts.get(sandbox_id, (asyncio.Lock(), 0))
        self._acts[sandbox_id] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._acts.pop(sandbox_id)
            if users > 1:
                self._acts[sandbox_id] = (lock, users - 1)

    async def close(self) -> None:
        """Stop watching; machines go on."""
        watchers = [live.watcher for live in self._live.values()]
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
