"""Machines: what a node starts, measures and saves. A machine is the container; the sandbox is its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from sandlot.engine.core.model.network import Slot

GUEST_MOUNT = "/.sandlot"
ENVD_PORT = 49983


class Isolation(StrEnum):
    """What stands between the guest and the host's kernel. Every sandbox tells which one it has."""

    SENTRY = "sentry"  # gVisor: system calls are served by a user-space kernel
    NAMESPACES = "namespaces"  # the host's kernel, behind namespaces, seccomp and a user namespace
    NONE = "none"  # the fake of the tests


class PauseMode(StrEnum):
    """What a paused sandbox keeps: memory and files, or files alone."""

    FULL = "full"
    FILESYSTEM = "filesystem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one sandbox may use. Enforced from outside, except `pids` under gVisor (rlimits inside)."""

    cpu_count: int = 2
    memory_mb: int = 1024
    disk_mb: int = 5120
    pids: int = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine as its node knows it. `handle` is opaque outside the node and is plain JSON data."""

    sandbox_id: str
    runtime: str
    isolation: Isolation
    address: str  # IPv4 that the node proxy dials
    handle: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSpec:
    """Everything a runtime needs to start one machine; all host paths come from the node, none from a guest."""

    machine_id: str
    directory: Path  # this machine's own directory; the runtime may use `runtime/` below it
    layers: tuple[Path, ...]  # template layers, bottom first, read-only
    guest: Path  # the guest runtime: mounted read-only at GUEST_MOUNT
    slot: Slot
    resources: Resources
    hostname: str
    argv: tuple[str, ...]  # what runs as the first process: envd
    env: Mapping[str, str] = field(default_factory=dict)
    boot_id: str | None = None  # what the guest's kernel says of this boot; None: whatever it says by itself
    checkpoint: Path | None = None  # begin with this state, written by the same runtime's `capture`
    program: str | None = None  # the program that wrote it
    owns_checkpoint: bool = False  # nobody else needs that state: it may be changed in place
    writes_layer: bool = False  # what it writes is wanted as a layer, where the host can read it


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """What a runtime started. `state` is opaque outside its driver and is plain JSON data."""

    machine_id: str
    runtime: str
    state: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """Why a machine is no longer there, in words for people."""

    reason: str  # "out of memory", "too many processes", "disk full", "exited"
    expected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """One look at what a machine uses, measured from outside the guest."""

    at: datetime
    cpu_count: int
    cpu_used_pct: float
    mem_used: int
    mem_total: int
    mem_cache: int
    disk_used: int
    disk_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A machine's state on a node's disk: enough to start machines from, on this node, with nothing else remembered."""

    name: str  # the paused sandbox's id, or the snapshot's
    runtime: str
    program: str  # what wrote it, by content: only the same program reads it
    mode: PauseMode
    guest: str  # the guest runtime inside it, by digest
    layers: tuple[str, ...]
    resources: Resources
    boot_id: str
    envd_token: str | None  # what its daemon believes; it takes a new identity only from who knows this
    created_at: datetime
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    at: datetime
    message: str
    level: str = "info"  # debug, info, warn, error
    fields: Mapping[str, str] = field(default_factory=dict)
