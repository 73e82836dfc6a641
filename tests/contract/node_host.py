"""Nodes for the node contract: the real local node over a fake runtime and network, reached directly or through JSON."""

from __future__ import annotations

import contextlib
import inspect
import json
import typing
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from tests.fakes_network import FakeHost, FakeNetwork
from tests.fakes_runtime import FakeHostOfMachines, FakeRuntime

from sandlot.engine.core import errors
from sandlot.engine.core.codec import decode, encode
from sandlot.engine.core.errors import EngineError
from sandlot.engine.core.model import LogEntry
from sandlot.engine.core.ports import Node, NodeHost, NodeMachines, NodeProxy, NodeSnapshots, Runtime
from sandlot.engine.node.boot import Guest, MachineBoot
from sandlot.engine.node.boot_snapshots import BootSnapshots
from sandlot.engine.node.checkpoint_store import CheckpointStore
from sandlot.engine.node.egress_reports import EgressReports
from sandlot.engine.node.envd.client import EnvdClient, Identity
from sandlot.engine.node.idle_freezer import IdleFreezer
from sandlot.engine.node.inventory import Inventory
from sandlot.engine.node.local import LocalNode, NodeParts
from sandlot.engine.node.logs import EndedLogs, SandboxLogs
from sandlot.engine.node.machine_table import MachineTable
from sandlot.engine.node.machines import MachineFactory, Parts
from sandlot.engine.node.proxy.app import LocalProxy
from sandlot.engine.node.warm_pool import PoolLimits, WarmPool


class FakeEnvd:
    """The daemons of all machines: they take any identity, and log what the test says."""

    def __init__(self) -> None:
        self.identities: list[Identity] = []
        self.entries: list[LogEntry] = []
        self.halted: list[str] = []

    async def init(
        self, address: str, identity: Identity, *, held_token: str | None = None, within_s: float = 30
    ) -> str:
        self.identities.append(identity)
        return "0.0.0"

    async def halt(self, address: str, token: str | None) -> None:
        self.halted.append(address)

    async def is_idle(self, address: str, token: str | None) -> bool:
        return True

    async def logs(self, address: str, token: str | None) -> Sequence[LogEntry]:
        return self.entries

    async def relay(self, address: str, token: str | None, port: int) -> int | None:
        return None


@dataclass
class HostOfNode:
    """What survives a restart of the server, and the parts of the node that serves now."""

    directory: Path
    machines: FakeHostOfMachines = field(default_factory=FakeHostOfMachines)
    network: FakeHost = field(default_factory=FakeHost)
    envd: FakeEnvd = field(default_factory=FakeEnvd)

    def __post_init__(self) -> None:
        for name in ("layers/l1/bin", "guest/0a"):
            (self.directory / name).mkdir(parents=True)
        (self.directory / "layers/l1/bin/envd").touch()

    @contextlib.asynccontextmanager
    async def node(self, *, pool_size: int = 0, boot_snapshots: int = 0) -> AsyncIterator[OpenNode]:
        runtime, network = FakeRuntime(self.machines), FakeNetwork(self.network)
        envd, directory = cast(EnvdClient, self.envd), self.directory
        guest = Guest(directory=directory / "guest/0a", argv=("/bin/envd",), env={})
        store = CheckpointStore(directory / "checkpoints", 1 << 30)
        boot = MachineBoot(
            layers_dir=directory / "layers", guest=guest, network=network, envd=envd, commands=None, checkpoints=store
        )
        runtimes: Mapping[str, Runtime] = {"fake": runtime}
        table = MachineTable(node="n1", directory=directory / "sandboxes")
        factory = MachineFactory(
            table=table,
            parts=Parts(runtimes=runtimes, network=network, boot=boot, envd=envd, checkpoints=store),
            scratch=directory / "taken",
        )
        snapshots = BootSnapshots(
            machines=factory, checkpoints=store, guest="0a", layers_dir=directory / "layers", most=boot_snapshots
        )
        freezer = IdleFreezer(factory, patience_s=0)
        parts = NodeParts(
            factory=factory,
            egress=EgressReports(table.sandbox_of),
            warm_pool=WarmPool(machines=factory, starts=snapshots, limits=PoolLimits(size=pool_size)),
            boot_snapshots=snapshots,
            freezer=freezer,
            proxy=LocalProxy(machines=table, freezer=freezer, envd=envd),
            logs=SandboxLogs(machines=factory, envd=envd, ended=EndedLogs(directory / "logs"), keep=timedelta(hours=1)),
            store=store,
            inventory=Inventory(machines=factory, network=network, checkpoints=store, guest=guest.directory),
        )
        local = LocalNode(name="n1", parts=parts, layers_dir=directory / "layers")
        try:
            yield OpenNode(local, parts, runtime, network)
        finally:
            await local.close()


@dataclass
class OpenNode:
    local: LocalNode
    parts: NodeParts
    runtime: FakeRuntime
    network: FakeNetwork


class RemoteNode:
    """A node behind a wire: every argument, result and error is turned into JSON and back."""

    def __init__(self, node: Node) -> None:
        self.name = node.name
        self.machines = cast(NodeMachines, _Remote(NodeMachines, node.machines))
        self.snapshots = cast(NodeSnapshots, _Remote(NodeSnapshots, node.snapshots))
        self.host = cast(NodeHost, _Remote(NodeHost, node.host))
        self.proxy: NodeProxy = node.proxy  # bytes go by HTTP, not by records


class _Remote:
    def __init__(self, protocol: type, real: object) -> None:
        self._protocol, self._real = protocol, real

    def __getattr__(self, name: str) -> Any:
        declared = getattr(self._protocol, name)
        hints, signature = typing.get_type_hints(declared), inspect.signature(declared)

        async def call(*positional: Any, **named: Any) -> Any:
            given = signature.bind(None, *positional, **named).arguments
            given.pop("self")
            sent = json.loads(json.dumps({each: encode(value) for each, value in given.items()}))
            taken = {each: decode(hints[each], value) for each, value in sent.items()}
            try:
                result = await getattr(self._real, name)(**taken)
            except EngineError as error:
                kind, message = json.loads(json.dumps([type(error).__name__, str(error)]))
                raise getattr(errors, kind)(message) from None
            return decode(hints["return"], json.loads(json.dumps(encode(result))))

        return call
