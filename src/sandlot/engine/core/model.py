"""The engine's nouns: plain frozen records that every room shares, with no behaviour beyond their own facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

EMPTY: Mapping[str, Any] = MappingProxyType({})


class State(StrEnum):
    """Where a sandbox is in its life. `lifecycle.MOVES` says which step may follow which."""

    CREATING = "creating"
    RUNNING = "running"
    CAPTURING = "capturing"  # its state is being written for a snapshot or forks; it goes on in a moment
    PAUSING = "pausing"
    PAUSED = "paused"
    RESUMING = "resuming"
    STOPPING = "stopping"
    ENDED = "ended"


class OnTimeout(StrEnum):
    KILL = "kill"
    PAUSE = "pause"


class PauseMode(StrEnum):
    """What a paused sandbox keeps: memory and files, or files alone."""

    FULL = "full"
    FILESYSTEM = "filesystem"


class Isolation(StrEnum):
    """What stands between the guest and the host's kernel. Every sandbox tells which one it has."""

    SENTRY = "sentry"  # gVisor: system calls are served by a user-space kernel
    NAMESPACES = "namespaces"  # the host's kernel, behind namespaces, seccomp and a user namespace
    NONE = "none"  # the fake of the tests


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one sandbox may use. Enforced from outside, except `pids` under gVisor (rlimits inside)."""

    cpu_count: int = 2
    memory_mb: int = 1024
    disk_mb: int = 5120
    pids: int = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPolicy:
    """What a sandbox may reach, and who may reach it. Values were validated at the door.

    Order of decision for outgoing traffic: the operator's fixed denials (host, other sandboxes, private
    ranges that were not opened by a setting), then `allow_out`, then `deny_out`, then yes.
    """

    allow_out: tuple[str, ...] = ()  # IPv4, CIDR, domain or *.domain
    deny_out: tuple[str, ...] = ()  # IPv4 or CIDR
    allow_internet: bool | None = None  # False is the same as denying 0.0.0.0/0; None: not said
    allow_public_traffic: bool = True
    mask_request_host: str | None = None
    https_ports: tuple[int, ...] = ()
    dns_servers: tuple[str, ...] | None = None  # None: the host's resolvers; (): none at all


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    id: str
    name: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An API key as stored: the secret itself is shown once, at creation, and never kept."""

    id: str
    team_id: str
    name: str
    digest: str  # sha256 hex of the whole secret
    hint: str  # e.g. "e2b_1a2b…9f": enough to recognise it in a list
    created_at: datetime
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What a sandbox starts from. `layers` are names below the data directory's `layers/`, bottom first."""

    id: str
    team_id: str | None  # None: built in, everybody's
    name: str
    layers: tuple[str, ...]
    build_id: str
    created_at: datetime
    updated_at: datetime
    runtime: str | None = None  # None: the server's default
    resources: Resources = Resources()
    env: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    start_cmd: str | None = None
    ready_cmd: str | None = None
    default_user: str = "user"
    default_workdir: str = "/home/user"
    public: bool = False
    recipe_digest: str = ""  # what it was built from; a new recipe gives a new digest
    envd_version: str = ""
    checkpoint: str | None = None  # the saved state that its sandboxes begin with; None: they boot
    source: str | None = None  # the sandbox it is a snapshot of; None: it was built
    node: str | None = None  # the node that has the saved state
    spawn_count: int = 0
    last_spawned_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine as its node knows it. `handle` is opaque outside the node and is plain JSON data."""

    sandbox_id: str
    runtime: str
    isolation: Isolation
    address: str  # IPv4 that the edge dials
    handle: Mapping[str, Any] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """A sandbox's row. Only `lifecycle` writes it, always by compare-and-set on `revision`."""

    id: str
    team_id: str
    template_id: str
    template_name: str
    state: State
    runtime: str
    node: str
    resources: Resources
    created_at: datetime
    started_at: datetime
    end_at: datetime  # the deadline; the sweeper acts on it
    envd_version: str
    build_id: str | None = None  # the build of the template that it was made from; None: from before this was kept
    revision: int = 0
    machine: Machine | None = None
    metadata: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    env_vars: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    network: NetworkPolicy = NetworkPolicy()
    envd_token: str | None = None  # None: an unsecured sandbox of the older SDK generation
    traffic_token: str | None = None
    timeout_s: int = 300
    on_timeout: OnTimeout = OnTimeout.KILL
    auto_resume: bool = False
    pause_memory: bool = True  # what a pause by timeout keeps
    pause_mode: PauseMode | None = None  # set while paused
    idempotency_key: str | None = None
    request_digest: str | None = None  # of the request that used the key, to tell a repeat from a different request
    ended_at: datetime | None = None
    end_reason: str | None = None  # "killed", "timeout", "out of memory", ...: for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A place on the network for one machine: two namespaces, an address the edge can dial."""

    index: int
    netns: Path  # the sandbox's namespace, as a path for the runtime
    address: str  # unique on this host; the router translates it
    guest_address: str  # the same in every slot, so that a checkpoint fits any slot
    guest_gateway: str
    guest_prefix: int = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSpec:
    """Everything a runtime needs to start one machine; all host paths come from the node, none from a guest."""

    sandbox_id: str
    directory: Path  # this sandbox's own directory; the runtime may use `runtime/` below it
    layers: tuple[Path, ...]  # template layers, bottom first, read-only
    guest: Path  # the guest runtime: mounted read-only at GUEST_MOUNT
    slot: Slot
    resources: Resources
    hostname: str
    argv: tuple[str, ...]  # what runs as the first process: envd
    env: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    boot_id: str | None = None  # what the guest's kernel says of this boot; None: whatever it says by itself
    checkpoint: Path | None = None  # begin with this state, written by the same runtime's `capture`
    program: str | None = None  # the program that wrote it
    owns_checkpoint: bool = False  # nobody else needs that state: it may be changed in place


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
class Instance:
    """What a runtime started. `state` is opaque outside its driver and is plain JSON data."""

    sandbox_id: str
    runtime: str
    state: Mapping[str, Any] = field(default_factory=lambda: EMPTY)


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
class LogEntry:
    at: datetime
    message: str
    level: str = "info"  # debug, info, warn, error
    fields: Mapping[str, str] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMachine:
    """What the control plane asks of a node: a machine that answers, with this identity and policy."""

    sandbox_id: str
    runtime: str
    template: Template
    resources: Resources
    network: NetworkPolicy
    envd_token: str | None
    env_vars: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    checkpoint: str | None = None  # begin with this state; the template's layers then do not matter
    memory: bool = True  # False: only the files of that state, on a fresh boot


class BuildStatus(StrEnum):
    """Where a build is. E2B's own words."""

    WAITING = "waiting"
    BUILDING = "building"
    READY = "ready"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One instruction of a recipe, as the caller sent it."""

    type: str  # RUN, COPY, WORKDIR, USER or ENV
    args: tuple[str, ...] = ()
    force: bool = False  # run this and all that follow, whatever the cache has
    files_hash: str | None = None  # COPY: the uploaded archive


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryLogin:
    """What a private registry asks for; lives as long as the build, and is never stored or shown."""

    username: str = field(repr=False)
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AmazonLogin:
    """A key for Amazon's registries, to be traded for what such a registry asks for; kept as little as that."""

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    region: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What to build: where to begin, the steps, and what must run at the end."""

    from_image: str | None = None
    from_template: str | None = None
    login: RegistryLogin | AmazonLogin | None = None
    force: bool = False
    steps: tuple[Step, ...] = ()
    start_cmd: str | None = None
    ready_cmd: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a finished build gave: all that a template needs to start sandboxes."""

    layers: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    user: str = "user"
    workdir: str = "/home/user"
    start_cmd: str | None = None
    ready_cmd: str | None = None
    runtime: str | None = None
    checkpoint: str | None = None
    node: str | None = None
    recipe_digest: str = ""
    envd_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One attempt to make a template's content. `problem_step`: "base", "finalize", or the number of a step from 1."""

    id: str
    template_id: str
    team_id: str
    status: BuildStatus
    tags: tuple[str, ...]
    resources: Resources
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None = None
    content: Content | None = None
    problem: str | None = None
    problem_step: str | None = None


def built(template: Template, build: Build) -> Template:
    """The template as this build of it is."""
    made = build.content
    if made is None:
        return template
    return replace(
        template,
        layers=made.layers,
        build_id=build.id,
        runtime=made.runtime,
        resources=build.resources,
        env=made.env,
        start_cmd=made.start_cmd,
        ready_cmd=made.ready_cmd,
        default_user=made.user,
        default_workdir=made.workdir,
        recipe_digest=made.recipe_digest,
        envd_version=made.envd_version,
        checkpoint=made.checkpoint,
        node=made.node,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """A name for one build of a template."""

    template_id: str
    tag: str
    build_id: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """A command of a build: what a short-lived machine over these layers is to run."""

    layers: tuple[str, ...]
    command: str
    user: str
    workdir: str | None
    env: Mapping[str, str]
    resources: Resources
    network: NetworkPolicy
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerResult:
    """A new layer, or None if nothing changed; and the home directory of the user asked about."""

    layer: str | None
    home: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What an image name stands for here: a stock template, or layers that were brought in."""

    told: str  # what was used, in a sentence for the build log
    template: str | None = None
    layers: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    user: str | None = None
    workdir: str | None = None


GUEST_MOUNT = "/.sandlot"
ENVD_PORT = 49983
