"""What the control plane and a node tell each other: plain records that serialise, because a node may be another host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sandlot.engine.core.model.machine import Exit, Resources
from sandlot.engine.core.model.network import NetworkPolicy
from sandlot.engine.core.model.template import Template


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMachine:
    """What the control plane asks of a node: a machine that answers, with this identity and policy."""

    sandbox_id: str
    runtime: str
    template: Template
    resources: Resources
    network: NetworkPolicy
    envd_token: str | None
    env_vars: Mapping[str, str] = field(default_factory=dict)
    checkpoint: str | None = None  # begin with this state; the template's layers then do not matter
    memory: bool = True  # False: only the files of that state, on a fresh boot
    writes_layer: bool = False  # what it writes is wanted as a layer


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningMachine:
    """A machine that runs already, as its sandbox's row describes it."""

    sandbox_id: str
    runtime: str
    network: NetworkPolicy
    envd_token: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCounters:
    """What a node counts, for metrics."""

    warm_ready: Mapping[str, int] = field(default_factory=dict)  # machines in the warm pool, by runtime
    warm_hits: int = 0
    warm_misses: int = 0
    boot_snapshot_starts: int = 0  # machines that began with a boot snapshot
    frozen: int = 0  # machines frozen because they are idle
    open_connections: int = 0  # exchanges that pass into machines now
    checkpoint_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """What placement needs to know of a node."""

    name: str
    cpu_count: int
    memory_mb: int
    machines: int  # that run, warm ones not counted
    is_healthy: bool = True
    is_draining: bool = False  # takes no new machines
    runtimes: tuple[str, ...] = ()
    layers: frozenset[str] = frozenset()
    checkpoints: frozenset[str] = frozenset()
    counters: NodeCounters = field(default_factory=NodeCounters)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineExited:
    """A machine ended by itself."""

    sandbox_id: str
    exit: Exit


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvents:
    """A page of what happened on a node, and how the node is now.

    `cursor` continues behind it; `is_reset`: events before it may have been missed.
    """

    cursor: str
    status: NodeStatus
    exits: tuple[MachineExited, ...] = ()
    is_reset: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyTarget:
    """Where in a sandbox a request goes, and how the service there wants to be spoken to."""

    sandbox_id: str
    port: int
    use_tls: bool = False
    host_mask: str | None = None  # the Host that the service sees; `${PORT}` stands for the port
