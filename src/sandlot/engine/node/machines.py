"""The machines of this host that this process knows: found by id, watched until they end, changed by one act at a time, freed whole."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from sandlot.engine.core.errors import InvalidRequest, NotFound
from sandlot.engine.core.model import Exit, Instance, Machine, NetworkPolicy, NewMachine, Usage
from sandlot.engine.core.ports import Network, Runtime
from sandlot.engine.node import machine_files as records
from sandlot.engine.node import processes
from sandlot.engine.node.boot import Started


@dataclass(slots=True, kw_only=True)
class Live:
    """What this process knows of a machine it started or adopted; the host has everything but the token."""

    machine: Machine
    instance: Instance
    token: str | None
    watcher: asyncio.Task[None]
    begun: records.BootRecord
    hidden: records.Window | None = None
    at_rest: tuple[float, Usage] | None = None  # since when it is held still, and what it uses meanwhile


class Machines:
    """`ended` is called with every machine that ends by itself."""

    def __init__(
        self,
        *,
        node: str,
        directory: Path,
        runtimes: Mapping[str, Runtime],
        network: Network,
        ended: Callable[[str, Exit], Awaitable[None]],
    ) -> None:
        self._node, self._top, self._network, self._ended = node, directory, network, ended
        self.runtimes = runtimes
        self._live: dict[str, Live] = {}
        self._acts: dict[str, tuple[asyncio.Lock, int]] = {}
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    # -- finding ---------------------------------------------------------------------------------------------------

    def runtime(self, name: str) -> Runtime:
        try:
            return self.runtimes[name]
        except KeyError:
            have = ", ".join(sorted(self.runtimes)) or "none"
            raise InvalidRequest(f"runtime {name!r} does not work on node {self._node!r} (it has: {have})") from None

    def of(self, live: Live) -> Runtime:
        return self.runtimes[live.instance.runtime]

    def get(self, sandbox_id: str) -> Live | None:
        return self._live.get(sandbox_id)

    def known(self, sandbox_id: str) -> Live:
        live = self._live.get(sandbox_id)
        if live is None:
            raise NotFound(f"sandbox {sandbox_id} has no machine on node {self._node!r}")
        return live

    def directory(self, sandbox_id: str) -> Path:
        return self._top / sandbox_id

    def on_disk(self) -> set[str]:
        """Every id that something is written down about."""
        return {path.name for path in self._top.iterdir()}

    def written(self) -> Sequence[Mapping[str, Any]]:
        """What is written down about each of them."""
        return [records.read(path) for path in self._top.iterdir()]

    # -- acting ----------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def alone(self, sandbox_id: str) -> AsyncIterator[None]:
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

    def in_motion(self, sandbox_id: str) -> bool:
        return sandbox_id in self._acts

    @contextlib.asynccontextmanager
    async def whole(self, sandbox_id: str) -> AsyncIterator[None]:
        """Alone with a machine that is to be there when this ends well, and gone when it does not: also on cancellation."""
        async with self.alone(sandbox_id):
            try:
                yield
            except BaseException:
                await processes.to_the_end(self.undo(sandbox_id))
                raise

    # -- knowing ---------------------------------------------------------------------------------------------------

    def watched(self, runtime: Runtime, started: Started, token: str | None) -> Live:
        live = self._live[started.instance.sandbox_id] = Live(
            machine=started.machine,
            instance=started.instance,
            token=token,
            watcher=self._watch(runtime, started.instance),
            begun=started.begun,
            hidden=started.hidden,
        )
        return live

    async def take_over(self, sandbox_id: str, runtime_name: str, policy: NetworkPolicy, token: str | None) -> Live:
        """Know a machine that an earlier process started, from what is written down about it."""
        record = records.read(self.directory(sandbox_id))
        if "instance" not in record:
            raise NotFound(f"sandbox {sandbox_id} has no machine on node {self._node!r}")
        runtime = self.runtime(runtime_name)
        instance = Instance(sandbox_id=sandbox_id, runtime=runtime_name, state=record["instance"])
        await self._network.adopt(sandbox_id, policy)
        live = self._live.get(sandbox_id)
        if live is None or live.watcher.done():
            live = self._live[sandbox_id] = Live(
                machine=records.machine(sandbox_id, runtime, record),
                instance=instance,
                token=token,
                watcher=self._watch(runtime, instance),
                begun=records.begun(record["begun"]),
                hidden=records.hidden(record),
            )
        return live

    async def if_alive(self, new: NewMachine) -> Live | None:
        try:
            live = await self.take_over(new.sandbox_id, new.runtime, new.network, new.envd_token)
        except NotFound:
            return None
        if await self.runtime(new.runtime).alive(live.instance):
            return live
        await self.unwatch(new.sandbox_id)
        return None

    async def unwatch(self, sandbox_id: str) -> None:
        live = self._live.pop(sandbox_id, None)
        if live is not None:
            live.watcher.cancel()
            await asyncio.gather(live.watcher, return_exceptions=True)

    def _watch(self, runtime: Runtime, instance: Instance) -> asyncio.Task[None]:
        async def watch() -> None:
            ended = await runtime.wait(instance)
            await self._ended(instance.sandbox_id, ended)

        return asyncio.create_task(watch(), name=f"watch {instance.sandbox_id}")

    async def undo(self, sandbox_id: str) -> None:
        """Free everything under this id, whatever of it exists."""
        live = self._live.pop(sandbox_id, None)
        if live is not None:
            live.watcher.cancel()
        directory = self.directory(sandbox_id)
        for runtime, instance in self._instances_of(sandbox_id, live, records.read(directory)):
            await runtime.stop(instance, grace=timedelta(0))
        await self._network.release(sandbox_id)
        if directory.exists():
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)

    def _instances_of(
        self, sandbox_id: str, live: Live | None, record: Mapping[str, Any]
    ) -> Sequence[tuple[Runtime, Instance]]:
        if live is not None:
            return [(self.runtimes[live.instance.runtime], live.instance)]
        names = [record["runtime"]] if record.get("runtime") in self.runtimes else list(self.runtimes)
        state = record.get("instance", {})
        return [(self.runtimes[name], Instance(sandbox_id=sandbox_id, runtime=name, state=state)) for name in names]

    async def close(self) -> None:
        """Stop watching; machines go on."""
        watchers = [live.watcher for live in self._live.values()]
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
