"""The node of this host: a façade over the machine factory and what stands on it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sandlot.engine.core.errors import EngineError
from sandlot.engine.core.model import (
    EgressReport,
    LogEntry,
    Machine,
    NetworkPolicy,
    NewMachine,
    NodeCounters,
    NodeEvents,
    NodeStatus,
    RunningMachine,
    Usage,
)
from sandlot.engine.node.boot_snapshots import BootSnapshots
from sandlot.engine.node.checkpoint_store import CheckpointStore
from sandlot.engine.node.checkpoints import Checkpoints
from sandlot.engine.node.egress_reports import EgressReports
from sandlot.engine.node.idle_freezer import IdleFreezer
from sandlot.engine.node.inventory import Inventory
from sandlot.engine.node.logs import SandboxLogs
from sandlot.engine.node.machines import MachineFactory
from sandlot.engine.node.proxy.app import LocalProxy
from sandlot.engine.node.warm_pool import WarmPool

log = logging.getLogger(__name__)

FROZEN_LOOK = timedelta(minutes=1)  # how often the usage of a frozen machine is read: little changes


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeParts:
    """What stands on the machine factory of a host."""

    factory: MachineFactory
    warm_pool: WarmPool
    boot_snapshots: BootSnapshots
    freezer: IdleFreezer
    proxy: LocalProxy
    logs: SandboxLogs
    store: CheckpointStore
    inventory: Inventory
    egress: EgressReports


class LocalMachines:
    """Starting, changing and ending machines of this host."""

    def __init__(self, parts: NodeParts) -> None:
        self._factory, self._pool, self._starts = parts.factory, parts.warm_pool, parts.boot_snapshots
        self._freezer, self._proxy, self._logs = parts.freezer, parts.proxy, parts.logs
        self._store, self._inventory = parts.store, parts.inventory

    async def start(self, new: NewMachine) -> Machine:
        with self._pool.yielding():
            live = await self._pool.lease(new) or await self._starts.start(new)
            self._freezer.watch(new.sandbox_id)
            return live.machine

    async def adopt(self, running: RunningMachine) -> None:
        await self._factory.adopt(running)
        await self._factory.thaw(running.sandbox_id)  # the earlier process may have frozen it
        self._freezer.watch(running.sandbox_id)

    async def stop(self, sandbox_id: str) -> None:
        self._proxy.cut(sandbox_id)
        async with self._factory.table.alone(sandbox_id), self._freezer.thawed(sandbox_id):
            await self._logs.save(sandbox_id)
            await self._factory.free(sandbox_id)
            await self._store.remove(sandbox_id)
        self._freezer.forget(sandbox_id)

    async def list(self) -> Sequence[Machine]:
        return await self._inventory.alive()

    async def set_network(self, sandbox_id: str, policy: NetworkPolicy) -> None:
        if policy.rules:  # its daemon is told whom to trust
            async with self._freezer.thawed(sandbox_id):
                await self._factory.set_network(sandbox_id, policy)
        else:
            await self._factory.set_network(sandbox_id, policy)

    async def usage(self, sandbox_id: str) -> Usage:
        """What the machine uses now. One that is frozen is looked at less often."""
        live = self._factory.table.known(sandbox_id)
        frozen_since = self._freezer.frozen_since(sandbox_id)
        if frozen_since is None:
            return await self._factory.usage(sandbox_id)
        now, seen = datetime.now(UTC), live.frozen_usage
        if seen is None or seen[0] != frozen_since or now - seen[1].at > FROZEN_LOOK:
            seen = live.frozen_usage = (frozen_since, await self._factory.usage(sandbox_id))
        return replace(seen[1], at=now, cpu_used_pct=0.0)

    async def logs(self, sandbox_id: str) -> Sequence[LogEntry]:
        async with self._freezer.thawed(sandbox_id):
            return await self._logs.read(sandbox_id)


class LocalHost:
    """This host: what it can take, what happened on it, what it may forget."""

    def __init__(self, name: str, parts: NodeParts, machines: LocalMachines, layers_dir: Path) -> None:
        self._name, self._parts, self._machines, self._layers_dir = name, parts, machines, layers_dir

    async def status(self) -> NodeStatus:
        parts = self._parts
        ready, hits, misses = parts.warm_pool.numbers()
        saved = await asyncio.to_thread(parts.store.all)
        return NodeStatus(
            name=self._name,
            cpu_count=os.cpu_count() or 1,
            memory_mb=(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) >> 20,
            machines=sum(live.is_leased for live in parts.factory.table.live()),
            runtimes=tuple(parts.factory.runtimes),
            layers=frozenset(path.name for path in self._layers_dir.iterdir() if not path.name.startswith(".")),
            checkpoints=frozenset(saved),
            counters=NodeCounters(
                warm_ready=ready,
                warm_hits=hits,
                warm_misses=misses,
                boot_snapshot_starts=parts.boot_snapshots.used,
                frozen=parts.freezer.count(),
                open_connections=parts.proxy.open_count(),
                checkpoint_bytes=sum(each.size_bytes for each in saved.values()),
            ),
        )

    async def events(self, cursor: str, *, wait_s: float) -> NodeEvents:
        page = await self._parts.factory.exits.page(cursor, wait_s)
        return NodeEvents(cursor=page.cursor, status=await self.status(), exits=page.exits, is_reset=page.is_reset)

    async def egress(self) -> EgressReport:
        return self._parts.egress.take()

    async def sweep(self, keep: Collection[str]) -> Sequence[str]:
        await self._parts.logs.purge()
        freed = []
        for name in sorted(await self._parts.inventory.names() - set(keep)):
            try:
                await self._machines.stop(name)
                freed.append(name)
            except EngineError as error:
                log.error("could not free what is left of sandbox %s: %s", name, error)
            except Exception:  # one that is broken in a new way must not keep the others
                log.exception("could not free what is left of sandbox %s", name)
        await self._parts.boot_snapshots.tidy()
        await asyncio.to_thread(self._parts.inventory.forget_unneeded)
        return freed

    async def forget_template(self, template_id: str) -> None:
        await self._parts.boot_snapshots.forget(template_id)
        await self._parts.warm_pool.drain(template_id)

    async def layers_in_use(self) -> frozenset[str]:
        return await self._parts.inventory.layers_in_use()


class LocalNode:
    """The node of the machine this process runs on. `loops` run for as long as the server does."""

    def __init__(self, *, name: str, parts: NodeParts, layers_dir: Path) -> None:
        self.name = name
        self.machines = LocalMachines(parts)
        self.snapshots = Checkpoints(
            machines=parts.factory, store=parts.store, freezer=parts.freezer, proxy=parts.proxy, logs=parts.logs
        )
        self.host = LocalHost(name, parts, self.machines, layers_dir)
        self.proxy = parts.proxy
        self._parts = parts

    def loops(self) -> Sequence[Callable[[], Awaitable[None]]]:
        parts = self._parts
        return (parts.freezer.run, parts.warm_pool.run, lambda: parts.boot_snapshots.run(parts.warm_pool.quiet))

    async def close_pool(self) -> None:
        """Stop what belongs to no sandbox."""
        await self._parts.warm_pool.close()

    async def close(self) -> None:
        """Stop watching; machines go on."""
        await self._parts.proxy.close()
        await self._parts.factory.close()
