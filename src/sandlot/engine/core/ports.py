"""The seams: what the engine's services ask of the outside, as small protocols. Adapters implement them, tests fake them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol, runtime_checkable

from sandlot.engine.core.model import (
    AmazonLogin,
    Build,
    BuildStatus,
    Checkpoint,
    Exit,
    Image,
    Instance,
    Isolation,
    Key,
    LayerResult,
    LogEntry,
    Machine,
    MachineSpec,
    NetworkPolicy,
    NewMachine,
    PauseMode,
    RegistryLogin,
    Sandbox,
    Slot,
    State,
    StepRun,
    Tag,
    Team,
    Template,
    Usage,
)

Clock = Callable[[], datetime]  # aware UTC


class Runtime(Protocol):
    """Starts and stops machines. A driver keeps no state that matters: all of it is on the host or in `Instance`."""

    name: str
    isolation: Isolation

    async def check(self) -> None:
        """Raise `Unavailable`, saying what to install or change, if machines cannot be started here."""

    async def start(self, spec: MachineSpec) -> Instance:
        """Start a machine, all or nothing: on any failure (cancellation too) nothing of it is left. Raises `MachineFailed`."""

    async def stop(self, instance: Instance, *, grace: timedelta = timedelta(0)) -> None:
        """End the machine and free all it holds on the host. Idempotent."""

    async def alive(self, instance: Instance) -> bool: ...

    async def wait(self, instance: Instance) -> Exit:
        """Return when the machine has ended, with the reason as seen from outside (for example the kernel's OOM count)."""

    async def instances(self) -> Sequence[Instance]:
        """What this host really has of this runtime and this data directory, found by looking; stopped leftovers too."""

    async def usage(self, instance: Instance) -> Usage:
        """What the machine uses now, read from outside. Raises `NotFound` if it is gone."""

    async def close(self) -> None:
        """Give back what the host holds for machines in general, as far as no machine needs it. `start` works again after it."""


@runtime_checkable
class LimitReporting(Protocol):
    """The ability to say what a machine was refused: limits it ran into and lived on."""

    async def troubles(self, instance: Instance) -> Sequence[str]: ...


@runtime_checkable
class Freezing(Protocol):
    """The ability to hold all processes of a machine still, in memory, and let them go on."""

    async def freeze(self, instance: Instance) -> None: ...

    async def thaw(self, instance: Instance) -> None: ...


@runtime_checkable
class Capturing(Protocol):
    """The ability to write a machine's state to disk, for `start` to begin with (`MachineSpec.checkpoint`)."""

    captures_memory: bool  # False: files alone

    async def program(self) -> str:
        """What will read and write state now, by content. Earlier programs are kept for as long as state needs them."""

    def keep_programs(self, needed: Collection[str]) -> None:
        """Forget earlier programs that are not `needed`."""

    async def capture(self, instance: Instance, into: Path, *, final: bool) -> None:
        """Write the machine's state into the new directory `into`. The machine goes on, unharmed, also on failure.

        `final`: the machine is stopped right after, so what is written may share the machine's own disk.
        Connections into the machine must have been closed before. Raises `MachineFailed`.
        """


@runtime_checkable
class LayerExporting(Protocol):
    """The ability to show what a machine wrote, in the form of a layer."""

    def written(self, state: Path, sandbox_id: str) -> AbstractAsyncContextManager[Path]:
        """What a captured machine that is stopped by now had changed, as a directory to be copied."""


class Network(Protocol):
    """Gives machines a place on the network and enforces their policy there."""

    async def open(self) -> None:
        """Prepare the host (forwarding, guard rules, first slots). Safe to call again after a crash."""

    async def close(self) -> None:
        """End what lives in this process (relays); slots and rules stay for running machines."""

    async def acquire(self, sandbox_id: str, policy: NetworkPolicy) -> Slot:
        """Claim a free slot and put the policy in force before returning. Raises `NoCapacity`."""

    async def adopt(self, sandbox_id: str, policy: NetworkPolicy) -> Slot:
        """Take over a claim made by an earlier process: bring relays back. Raises `NotFound`."""

    async def apply(self, sandbox_id: str, policy: NetworkPolicy) -> None:
        """Replace the policy of a claimed slot, without a moment in which neither is in force."""

    async def release(self, sandbox_id: str) -> None:
        """Give the slot back, clean. Idempotent."""

    async def claims(self) -> Mapping[str, Slot]:
        """Slots that are claimed, by sandbox id, found by looking at the host."""


class Node(Protocol):
    """One host's worth of machines: the only thing that touches files, namespaces and processes of that host."""

    name: str

    async def start(self, new: NewMachine) -> Machine:
        """A machine whose envd answers and has its identity. All or nothing."""

    def reserve(self, wish: NewMachine) -> str | None:
        """The id of a machine that stands ready for this, promised to the caller: `start` under that id is quick.

        None: there is none. A promise that comes to nothing is given back with `unreserve`.
        """

    def unreserve(self, sandbox_id: str) -> None:
        """The machine promised under this id is not needed. An id that was not promised is fine."""

    async def adopt(self, sandbox: Sandbox) -> None:
        """Take over a machine that an earlier process started: watch it, bring its network relays back."""

    async def stop(self, sandbox_id: str) -> None:
        """End the machine and free everything the sandbox owns on this host, its saved state too. Idempotent."""

    async def machines(self) -> Sequence[Machine]:
        """What the host really has: machines that are alive."""

    async def sweep(self, keep: Collection[str]) -> Sequence[str]:
        """Free what is under no name in `keep` (machines, slots, mounts, cgroups, directories, states); say what was freed."""

    async def pause(self, sandbox_id: str, *, memory: bool) -> PauseMode:
        """Take the machine off the host and keep its state, all of it or its files. On failure the machine goes on.

        Raises `InvalidRequest` if its runtime cannot, `NoCapacity` if there is no room for the state.
        """

    async def resume(self, new: NewMachine) -> Machine:
        """The paused machine again. On failure it stays paused. Raises `Unavailable` if its state is not usable."""

    async def recover(self, new: NewMachine) -> Machine | PauseMode:
        """Find out what is left of a machine whose pause, resume or capture did not come to its end, and bring it to one.

        The machine: it goes on, and no state of its own is kept. The mode: it rests, and its state is whole. Raises
        `NotFound` if nothing is left.
        """

    async def capture(self, sandbox_id: str, name: str, *, memory: bool, lasting: bool = True) -> Checkpoint:
        """Keep the state of a running machine under a name; the machine goes on. What is not `lasting` may be lost with the host."""

    async def checkpoints(self) -> Mapping[str, Checkpoint]:
        """The states this node has, by name."""

    async def discard(self, name: str) -> None:
        """Delete a state. Machines that began with it are not touched. Idempotent."""

    async def set_network(self, sandbox_id: str, policy: NetworkPolicy) -> None: ...

    async def usage(self, sandbox_id: str) -> Usage: ...

    async def logs(self, sandbox_id: str) -> Sequence[LogEntry]:
        """What the guest's daemon logged: untrusted text, bounded in size. Empty for unknown sandboxes."""

    async def relay_port(self, sandbox_id: str, port: int) -> int | None:
        """A port on the machine's address that leads to a service bound to the guest's loopback; None if there is none."""

    def on_exit(self, callback: Callable[[str, Exit], Awaitable[None]]) -> None:
        """Call back when a machine ends by itself."""


class SandboxStore(Protocol):
    async def add(self, sandbox: Sandbox, *, most: int | None = None, counting: Collection[State] = ()) -> bool:
        """False, and nothing is written, if `most` rows are in the states that count.

        Raises `Conflict` if the id, or the team's idempotency key, is taken.
        """

    async def get(self, sandbox_id: str) -> Sandbox | None: ...

    async def by_idempotency_key(self, team_id: str, key: str) -> Sandbox | None: ...

    async def swap(self, old: Sandbox, new: Sandbox) -> Sandbox:
        """Write `new` if the row still has `old.revision`; return it with the next revision. Raises `Conflict` if it moved on."""

    async def query(
        self,
        *,
        team_id: str | None = None,
        states: Collection[State] | None = None,
        metadata: Mapping[str, str] | None = None,
        template: str | None = None,  # id or name
        started_after: datetime | None = None,
        descending: bool = True,
        limit: int | None = None,
        after: tuple[datetime, str] | None = None,  # (started_at, id) of the last row already seen
    ) -> Sequence[Sandbox]: ...

    async def count(self, *, team_id: str | None = None, states: Collection[State] | None = None) -> int: ...

    async def expired(self, now: datetime, limit: int = 100) -> Sequence[Sandbox]:
        """Running sandboxes whose deadline has passed, oldest first."""

    async def purge(self, ended_before: datetime) -> int:
        """Delete rows that ended before; return how many."""


class TemplateStore(Protocol):
    async def put(self, template: Template) -> None:
        """Add, or replace the one with the same id."""

    async def resolve(self, team_id: str | None, ref: str) -> Template | None:
        """By id, or by name; a team's own before a built-in or public one. `name:tag` is the build with that tag."""

    async def of(self, sandbox: Sandbox) -> Template | None:
        """The template of a sandbox as the build was that the sandbox was made from; its layers may be gone by now."""

    async def list(self, team_id: str | None) -> Sequence[Template]:
        """Templates a team sees; no snapshots."""

    async def snapshots(
        self,
        team_id: str | None,
        *,
        source: str | None = None,
        name: str | None = None,  # id or name
        limit: int | None = None,
        after: tuple[datetime, str] | None = None,  # (created_at, id) of the last one already seen
    ) -> Sequence[Template]:
        """Snapshots, newest first."""

    async def delete(self, template_id: str) -> bool: ...

    async def spawned(self, template_id: str, at: datetime) -> None:
        """Count one more sandbox from this template."""


class AccessStore(Protocol):
    async def add_team(self, team: Team) -> None: ...

    async def teams(self) -> Sequence[Team]: ...

    async def add_key(self, key: Key) -> None: ...

    async def key_by_digest(self, digest: str) -> Key | None: ...

    async def keys(self, team_id: str | None = None) -> Sequence[Key]: ...

    async def revoke_key(self, key_id: str, at: datetime) -> bool: ...

    async def touch_key(self, key_id: str, at: datetime) -> None: ...


class BuildStore(Protocol):
    async def put(self, build: Build) -> None:
        """Add, or replace the one with the same id."""

    async def get(self, build_id: str) -> Build | None: ...

    async def query(
        self, *, template_id: str | None = None, statuses: Collection[BuildStatus] | None = None
    ) -> Sequence[Build]:
        """Newest first."""

    async def forget(self, template_id: str) -> None:
        """Delete the builds of a template, with their logs and tags."""

    async def log(self, build_id: str, first: int, entries: Sequence[LogEntry]) -> None:
        """Add lines, the first of which has this number (from 0)."""

    async def logs(self, build_id: str, *, offset: int, limit: int) -> Sequence[LogEntry]: ...


class TagStore(Protocol):
    async def assign(self, tags: Sequence[Tag]) -> None:
        """Add, or move to another build."""

    async def remove(self, template_id: str, tags: Collection[str]) -> int: ...

    async def list(self, template_id: str) -> Sequence[Tag]:
        """By name of the tag."""


Output = Callable[[str, str], None]  # a line, and its level: "info" for stdout, "warn" for stderr


class BuildRunner(Protocol):
    """Where steps of builds are carried out on a host, and where their results are kept as layers."""

    def recall(self, key: str) -> LayerResult | None:
        """What the step with this key gave before, if all of it is still here."""

    def remember(self, key: str, placed: LayerResult) -> None: ...

    async def place(self, layers: Sequence[str], acts: Sequence[Mapping[str, object]], disk_mb: int) -> LayerResult:
        """Change files over these layers without running anything of the image. Raises `StepFailed`.

        The message of the error begins with the number of the act that failed, counted from 0, and a colon.
        """

    async def join(self, layers: Sequence[str]) -> LayerResult:
        """One layer with what all of these together show."""

    async def run(self, machine_id: str, step: StepRun, output: Output) -> LayerResult:
        """Run a command in a machine of its own and keep what it changed. Raises `StepFailed`."""

    async def finish(
        self,
        machine_id: str,
        template: Template,
        runtime: str,
        network: NetworkPolicy,
        checkpoint: str,
        output: Output,
        *,
        ready_s: float,
    ) -> str | None:
        """Run start and ready command as a sandbox would; the name of the saved state, where the runtime keeps memory.

        Raises `StepFailed`.
        """


class Images(Protocol):
    """Where images come from by name."""

    async def find(self, ref: str, login: RegistryLogin | AmazonLogin | None, output: Output) -> Image:
        """Raises `StepFailed` if there is none, saying where it was looked for."""


class Uploads(Protocol):
    """Archives that callers sent ahead of a build, by team and by the caller's own hash."""

    def has(self, team_id: str, files_hash: str) -> bool: ...

    def digest(self, team_id: str, files_hash: str) -> str:
        """What the archive really holds, by content. Raises `NotFound`."""

    def path(self, team_id: str, files_hash: str) -> Path: ...

    async def receive(self, team_id: str, files_hash: str, chunks: AsyncIterator[bytes]) -> None:
        """Keep an archive, whole or not at all. Raises `InvalidRequest` if it is too large."""
