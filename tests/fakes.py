"""Fakes that several tests share. A fake that plays a failure is named for it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sandlot.engine.core.errors import MachineFailed, NotFound, PortClosed, StateUnusable, Unavailable
from sandlot.engine.core.model import (
    Checkpoint,
    EgressReport,
    Exit,
    Isolation,
    LogEntry,
    Machine,
    NetworkPolicy,
    NewMachine,
    NodeEvents,
    NodeStatus,
    PauseMode,
    ProxyTarget,
    Resources,
    RunningMachine,
    Usage,
)
from sandlot.engine.core.ports.node import Receive, Scope, Send
from sandlot.engine.node.exits import ExitLog


class FakeClock:
    """A clock that stands still until told."""

    def __init__(self, now: datetime = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class FakeNode:
    """A node whose machines are entries in a dict. Like a real one it outlives the control plane that uses it."""

    def __init__(self, name: str = "local") -> None:
        self.name = name
        self.machines, self.snapshots = FakeMachines(self), FakeSnapshots(self)
        self.host, self.proxy = FakeHost(self), FakeProxy()
        self.running: dict[str, Machine] = {}
        self.policies: dict[str, NetworkPolicy] = {}
        self.leftovers: set[str] = set()  # directories and slots of no machine
        self.started: list[NewMachine] = []
        self.stopped: list[str] = []
        self.adopted: list[str] = []
        self.saved: dict[str, Checkpoint] = {}  # checkpoints on disk
        self.frozen: set[str] = set()  # machines that stayed frozen, as after a crash in the middle of a capture
        self.resumed: list[NewMachine] = []
        self.discarded: list[str] = []
        self.entries: list[LogEntry] = []
        self.exits = ExitLog()
        self.egress = EgressReport()  # what left since the control plane last asked
        self.is_draining = False
        self.followed_to: str | None = None  # how far somebody has read `exits`; None: nobody does

    async def start(self, new: NewMachine) -> Machine:
        await asyncio.sleep(0)
        if new.checkpoint is not None and new.checkpoint not in self.saved:
            raise StateUnusable(f"the checkpoint of {new.checkpoint} is missing on this host")
        self.started.append(new)
        machine = Machine(
            sandbox_id=new.sandbox_id,
            runtime=new.runtime,
            isolation=Isolation.NONE,
            address=f"10.0.0.{len(self.started)}",
            handle={"slot": len(self.started)},
        )
        self.running[new.sandbox_id] = machine
        self.policies[new.sandbox_id] = new.network
        return machine

    async def adopt(self, running: RunningMachine) -> None:
        if running.sandbox_id not in self.running:
            raise NotFound(f"there is no machine of sandbox {running.sandbox_id!r}")
        self.adopted.append(running.sandbox_id)

    async def stop(self, sandbox_id: str) -> None:
        await asyncio.sleep(0)
        self.stopped.append(sandbox_id)
        self._take_away(sandbox_id)
        self.saved.pop(sandbox_id, None)

    async def recover(self, new: NewMachine) -> Machine | PauseMode:
        await asyncio.sleep(0)
        saved = self.saved.get(new.sandbox_id)
        if saved is not None:
            self._take_away(new.sandbox_id)
            return saved.mode
        if new.sandbox_id not in self.running:
            raise NotFound(f"nothing is left of sandbox {new.sandbox_id!r}")
        self.frozen.discard(new.sandbox_id)
        self.adopted.append(new.sandbox_id)
        return self.running[new.sandbox_id]

    def _take_away(self, sandbox_id: str) -> None:
        self.running.pop(sandbox_id, None)
        self.policies.pop(sandbox_id, None)
        self.frozen.discard(sandbox_id)

    async def pause(self, sandbox_id: str, *, memory: bool) -> PauseMode:
        await asyncio.sleep(0)
        mode = PauseMode.FULL if memory else PauseMode.FILESYSTEM
        self._save(sandbox_id, sandbox_id, mode)
        self._take_away(sandbox_id)
        return mode

    async def resume(self, new: NewMachine) -> Machine:
        self.resumed.append(new)
        machine = await FakeNode.start(self, replace(new, checkpoint=new.sandbox_id))
        del self.saved[new.sandbox_id]
        return machine

    async def capture(self, sandbox_id: str, name: str, *, memory: bool, lasting: bool = True) -> Checkpoint:
        await asyncio.sleep(0)
        return self._save(sandbox_id, name, PauseMode.FULL if memory else PauseMode.FILESYSTEM)

    def _save(self, sandbox_id: str, name: str, mode: PauseMode) -> Checkpoint:
        if sandbox_id not in self.running:
            raise NotFound(f"there is no machine of sandbox {sandbox_id!r}")
        self.saved[name] = Checkpoint(
            name=name,
            runtime="fake",
            program="",
            mode=mode,
            guest="g",
            layers=("l1",),
            resources=Resources(),
            boot_id="b",
            envd_token=None,
            created_at=datetime.now(UTC),
            size_bytes=1 << 20,
        )
        return self.saved[name]

    async def discard(self, name: str) -> None:
        self.discarded.append(name)
        self.saved.pop(name, None)

    async def list_machines(self) -> Sequence[Machine]:
        return list(self.running.values())

    async def sweep(self, keep: Collection[str]) -> Sequence[str]:
        gone = sorted((self.leftovers | set(self.running) | set(self.saved)) - set(keep))
        self.leftovers &= set(keep)
        self.saved = {name: state for name, state in self.saved.items() if name in keep}
        self.running = {name: machine for name, machine in self.running.items() if name in keep}
        return [f"directory of {name}" for name in gone]

    async def set_network(self, sandbox_id: str, policy: NetworkPolicy) -> None:
        if sandbox_id not in self.running:
            raise NotFound(f"there is no machine of sandbox {sandbox_id!r}")
        self.policies[sandbox_id] = policy

    async def crash(self, sandbox_id: str, reason: str = "out of memory") -> None:
        """End a machine as if by itself; returns when whoever follows this node has dealt with it."""
        del self.running[sandbox_id]
        self.exits.append(sandbox_id, Exit(reason=reason))
        if self.followed_to is not None:
            newest = (await self.exits.page("", 0)).cursor
            async with asyncio.timeout(10):
                while self.followed_to not in (newest, None):  # noqa: ASYNC110
                    await asyncio.sleep(0)

    def forget_followers(self) -> None:
        """What the end of a server does: machines go on, nobody listens to them."""
        self.followed_to = None


class FakeMachines:
    def __init__(self, node: FakeNode) -> None:
        self._node = node

    async def start(self, new: NewMachine) -> Machine:
        return await self._node.start(new)

    async def adopt(self, running: RunningMachine) -> None:
        await self._node.adopt(running)

    async def stop(self, sandbox_id: str) -> None:
        await self._node.stop(sandbox_id)

    async def list(self) -> Sequence[Machine]:
        return await self._node.list_machines()

    async def set_network(self, sandbox_id: str, policy: NetworkPolicy) -> None:
        await self._node.set_network(sandbox_id, policy)

    async def usage(self, sandbox_id: str) -> Usage:
        if sandbox_id not in self._node.running:
            raise NotFound(f"there is no machine of sandbox {sandbox_id!r}")
        return Usage(
            at=datetime.now(UTC),
            cpu_count=2,
            cpu_used_pct=1.5,
            mem_used=64 << 20,
            mem_total=1024 << 20,
            mem_cache=1 << 20,
            disk_used=1 << 20,
            disk_total=5120 << 20,
        )

    async def logs(self, sandbox_id: str) -> Sequence[LogEntry]:
        return self._node.entries


class FakeSnapshots:
    def __init__(self, node: FakeNode) -> None:
        self._node = node

    async def pause(self, sandbox_id: str, *, memory: bool) -> PauseMode:
        return await self._node.pause(sandbox_id, memory=memory)

    async def resume(self, new: NewMachine) -> Machine:
        return await self._node.resume(new)

    async def recover(self, new: NewMachine) -> Machine | PauseMode:
        return await self._node.recover(new)

    async def capture(self, sandbox_id: str, name: str, *, memory: bool, lasting: bool = True) -> Checkpoint:
        return await self._node.capture(sandbox_id, name, memory=memory, lasting=lasting)

    async def list(self) -> Mapping[str, Checkpoint]:
        return dict(self._node.saved)

    async def discard(self, name: str) -> None:
        await self._node.discard(name)


class FakeHost:
    def __init__(self, node: FakeNode) -> None:
        self._node = node
        self.forgotten: list[str] = []

    async def status(self) -> NodeStatus:
        node = self._node
        return NodeStatus(
            name=node.name,
            cpu_count=2,
            memory_mb=8192,
            machines=len(node.running),
            is_draining=node.is_draining,
            runtimes=("fake",),
            layers=frozenset({"l1", "base"}),
            checkpoints=frozenset(node.saved),
        )

    async def events(self, cursor: str, *, wait_s: float) -> NodeEvents:
        if cursor:
            self._node.followed_to = cursor
        page = await self._node.exits.page(cursor, wait_s)
        if not cursor:
            self._node.followed_to = page.cursor
        return NodeEvents(cursor=page.cursor, status=await self.status(), exits=page.exits, is_reset=page.is_reset)

    async def egress(self) -> EgressReport:
        report, self._node.egress = self._node.egress, EgressReport()
        return report

    async def sweep(self, keep: Collection[str]) -> Sequence[str]:
        return await self._node.sweep(keep)

    async def forget_template(self, template_id: str) -> None:
        self.forgotten.append(template_id)

    async def layers_in_use(self) -> frozenset[str]:
        return frozenset()


class FakeProxy:
    """Leads nowhere."""

    async def forward(self, target: ProxyTarget, scope: Scope, receive: Receive, send: Send) -> None:
        raise PortClosed(f"nothing listens at port {target.port}")


class SlowNode(FakeNode):
    """Holds every start until `go` is set; `entered` counts those that wait."""

    def __init__(self, name: str = "local") -> None:
        super().__init__(name)
        self.go = asyncio.Event()
        self.entered = asyncio.Semaphore(0)

    async def start(self, new: NewMachine) -> Machine:
        self.entered.release()
        await self.go.wait()
        return await super().start(new)


class LingeringNode(FakeNode):
    """Holds every stop until `go` is set; `entered` counts those that wait."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.entered = asyncio.Semaphore(0)

    async def stop(self, sandbox_id: str) -> None:
        self.entered.release()
        await self.go.wait()
        await super().stop(sandbox_id)


class SlowLookingNode(FakeNode):
    """Holds every look at its machines until `go` is set; what it then tells is what it saw at first."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.entered = asyncio.Semaphore(0)

    async def list_machines(self) -> Sequence[Machine]:
        seen = await super().list_machines()
        self.entered.release()
        await self.go.wait()
        return seen


class BrokenNode(FakeNode):
    """Fails every start, with any error it is given; leaves a directory behind until `stop`."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error or MachineFailed("the machine could not be started: no more slots")

    async def start(self, new: NewMachine) -> Machine:
        self.leftovers.add(new.sandbox_id)
        raise self.error

    async def stop(self, sandbox_id: str) -> None:
        await super().stop(sandbox_id)
        self.leftovers.discard(sandbox_id)


class UnstoppableNode(FakeNode):
    """Fails every stop until `mended` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.mended = False

    async def stop(self, sandbox_id: str) -> None:
        if not self.mended:
            raise Unavailable("the runtime does not answer")
        await super().stop(sandbox_id)


class ShortLivedNode(FakeNode):
    """Its machines end by themselves before `start` has returned."""

    async def start(self, new: NewMachine) -> Machine:
        machine = await super().start(new)
        await self.crash(new.sandbox_id, "exited")
        return machine


class LosingNode(FakeNode):
    """Has the machines, and cannot take them over."""

    async def adopt(self, running: RunningMachine) -> None:
        raise Unavailable("the slot's namespace is gone")


class RestlessNode(FakeNode):
    """Holds every pause, resume and capture until `go` is set; `entered` counts those that wait. Fails with `error` if it has one."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.entered = asyncio.Semaphore(0)
        self.error: Exception | None = None
        self.pauses = 0

    async def _hold(self) -> None:
        self.entered.release()
        await self.go.wait()
        if self.error is not None:
            raise self.error

    async def pause(self, sandbox_id: str, *, memory: bool) -> PauseMode:
        self.pauses += 1
        await self._hold()
        return await super().pause(sandbox_id, memory=memory)

    async def resume(self, new: NewMachine) -> Machine:
        await self._hold()
        return await super().resume(new)

    async def capture(self, sandbox_id: str, name: str, *, memory: bool, lasting: bool = True) -> Checkpoint:
        await self._hold()
        return await super().capture(sandbox_id, name, memory=memory, lasting=lasting)


class HalfPausingNode(FakeNode):
    """Saves the state, ends the machine, and then fails to say so."""

    async def pause(self, sandbox_id: str, *, memory: bool) -> PauseMode:
        await super().pause(sandbox_id, memory=memory)
        raise MachineFailed("something went wrong at the very end")
