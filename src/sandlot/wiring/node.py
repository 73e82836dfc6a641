"""Builds the node of this host from the settings: runtimes, network, guest runtime, and what stands on them."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sandlot.engine.core.errors import EngineError, Unavailable
from sandlot.engine.core.ports import Runtime
from sandlot.engine.node.boot import Guest, MachineBoot
from sandlot.engine.node.boot_snapshots import BootSnapshots
from sandlot.engine.node.checkpoint_store import CheckpointStore
from sandlot.engine.node.egress_reports import EgressReports
from sandlot.engine.node.envd.client import EnvdClient
from sandlot.engine.node.envd.commands import CommandClient
from sandlot.engine.node.idle_freezer import IdleFreezer
from sandlot.engine.node.images import guest
from sandlot.engine.node.inventory import Inventory
from sandlot.engine.node.local import LocalNode, NodeParts
from sandlot.engine.node.logs import EndedLogs, SandboxLogs
from sandlot.engine.node.machine_table import MachineTable
from sandlot.engine.node.machines import MachineFactory, Parts
from sandlot.engine.node.network.slots import Slots
from sandlot.engine.node.proxy.app import LocalProxy
from sandlot.engine.node.runtimes import RUNTIMES
from sandlot.engine.node.warm_pool import PoolLimits, WarmPool
from sandlot.program import SANDLOT
from sandlot.server.errors import StartupFailed
from sandlot.settings import Settings

log = logging.getLogger(__name__)

NODE = "local"
_CERTIFICATES = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
MOST_AUTHORITIES = 512 << 10  # of certificates for guests, in bytes: they are sent to every sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltNode:
    """The node, and what builds of templates share with it."""

    node: LocalNode
    factory: MachineFactory
    commands: CommandClient
    default_runtime: str


def instance_id(data_dir: Path) -> str:
    """Six hex digits that keep two instances on one machine apart in names of namespaces, cgroups and interfaces."""
    return hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:6]


@contextlib.asynccontextmanager
async def open_node(settings: Settings) -> AsyncIterator[BuiltNode]:
    """The node, ready to start machines. Machines outlive it."""
    async with contextlib.AsyncExitStack() as stack:
        runtimes = await _runtimes(settings)
        for runtime in runtimes.values():
            stack.push_async_callback(runtime.close)
        network = Slots(
            settings.data_dir,
            instance_id(settings.data_dir),
            settings.network_range,
            settings.network_allow_private,
            settings.dns_servers,
            settings.warm_slots,
            trusted := _guest_authorities(settings.guest_ca_file),
            settings.egress_log == "all",
        )
        await network.open()
        stack.push_async_callback(network.close)
        envd, commands = EnvdClient(trusted), CommandClient()
        for client in (envd, commands):
            await client.open()
            stack.push_async_callback(client.close)
        parts = await _parts(settings, runtimes, network, envd, commands)
        node = LocalNode(name=NODE, parts=parts, layers_dir=_layers_dir(settings))
        stack.push_async_callback(node.close)
        yield BuiltNode(
            node=node, factory=parts.factory, commands=commands, default_runtime=_default_runtime(settings, runtimes)
        )


async def _parts(
    settings: Settings, runtimes: Mapping[str, Runtime], network: Slots, envd: EnvdClient, commands: CommandClient
) -> NodeParts:
    data_dir, layers_dir = settings.data_dir, _layers_dir(settings)
    directory = await guest.build_guest(data_dir / "guest")
    store = CheckpointStore(data_dir / "checkpoints", settings.checkpoint_disk_gb << 30)
    boot = MachineBoot(
        layers_dir=layers_dir,
        guest=Guest(directory=directory, argv=guest.guest_argv(), env=guest.GUEST_ENVIRONMENT),
        network=network,
        envd=envd,
        commands=commands,
        checkpoints=store,
    )
    table = MachineTable(node=NODE, directory=data_dir / "sandboxes")
    factory = MachineFactory(
        table=table,
        parts=Parts(runtimes=runtimes, network=network, boot=boot, envd=envd, checkpoints=store),
        scratch=data_dir / "taken",
    )
    reports = EgressReports(table.sandbox_of)
    network.on_flows = reports.note
    snapshots = BootSnapshots(
        machines=factory, checkpoints=store, guest=directory.name, layers_dir=layers_dir, most=settings.boot_snapshots
    )
    freezer = IdleFreezer(factory, patience_s=settings.idle_freeze_s)
    return NodeParts(
        factory=factory,
        warm_pool=WarmPool(
            machines=factory,
            starts=snapshots,
            limits=PoolLimits(size=settings.pool_size, memory_bytes=settings.pool_memory_mb << 20),
        ),
        boot_snapshots=snapshots,
        freezer=freezer,
        proxy=LocalProxy(machines=table, freezer=freezer, envd=envd),
        logs=SandboxLogs(
            machines=factory,
            envd=envd,
            ended=EndedLogs(data_dir / "logs"),
            keep=timedelta(hours=settings.keep_ended_hours),
        ),
        store=store,
        inventory=Inventory(machines=factory, network=network, checkpoints=store, guest=directory),
        egress=reports,
    )


def _layers_dir(settings: Settings) -> Path:
    return settings.cache_dir / "layers"


async def _runtimes(settings: Settings) -> Mapping[str, Runtime]:
    """The runtimes that work on this host, by name."""
    programs = {"gvisor": settings.runsc, "container": None}
    found: dict[str, Runtime] = {}
    for name, kind in RUNTIMES.items():
        runtime: Runtime = kind(settings.data_dir, instance_id(settings.data_dir), program=programs.get(name))
        try:
            await runtime.check()
            found[name] = runtime
        except EngineError as error:
            log.warning("runtime %r does not work here: %s", name, error)
            if settings.runtime == name:
                raise
    if not found:
        raise Unavailable(
            f"no runtime works on this host, so no sandbox can be started; `{SANDLOT} doctor` says what is missing"
        )
    return found


def _default_runtime(settings: Settings, runtimes: Mapping[str, Runtime]) -> str:
    return settings.runtime if settings.runtime != "auto" else next(iter(runtimes))


def _guest_authorities(path: Path | None) -> str | None:
    """Certificates that sandboxes are to trust. Raises `StartupFailed` if there are none in the file."""
    if path is None:
        return None
    try:
        content = path.read_text("ascii")
        if len(content) > MOST_AUTHORITIES:
            raise ValueError(f"it is larger than {MOST_AUTHORITIES >> 10} KiB")
        found = _CERTIFICATES.findall(content)
        ssl.create_default_context(cadata="\n".join(found) or content)
    except (OSError, ValueError) as error:
        raise StartupFailed(
            f"SANDLOT_GUEST_CA_FILE: {path} holds no certificates (PEM) that can be read: {error}"
        ) from error
    return "\n".join(found) + "\n"  # and nothing else of the file: a key may stand in it
