"""The seams of the platform: providers of sandboxes, the stores, the transport of webhooks, the clock."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

from sandlot.platform.core.events import Event, EventFilter
from sandlot.platform.core.model import (
    BackgroundCommand,
    BoxProcess,
    Delivery,
    FileChange,
    FileEntry,
    PortAddress,
    ProviderSandbox,
    SandboxSpec,
    Session,
    SessionStatus,
    TerminalSize,
    UserKey,
    Webhook,
    WebhookBacklog,
)

Clock = Callable[[], datetime]
Channel = Literal["stdout", "stderr"]
OnOutput = Callable[[Channel, str], Awaitable[None]]
OnData = Callable[[bytes], Awaitable[None]]
OnChange = Callable[[FileChange], Awaitable[None]]


class RunningCommand(Protocol):
    """A command that runs in a sandbox, and that we follow."""

    pid: int

    async def wait(self) -> int:
        """Its exit code. Raises `SandboxGone` or `Unavailable` if the connection to it is lost."""

    async def kill(self) -> None:
        """End it; nothing happens if it has ended."""

    async def detach(self) -> None:
        """Stop following it. The command goes on."""


class BoxCommands(Protocol):
    """Commands in one sandbox. Everything raises `SandboxGone`, `Unavailable`."""

    async def start(
        self, command: str, *, cwd: str | None, envs: Mapping[str, str], user: str | None, on_output: OnOutput
    ) -> RunningCommand:
        """Start a command. `on_output` is awaited: a slow taker slows the command, and nobody else."""

    async def attach(self, pid: int, on_output: OnOutput) -> RunningCommand:
        """Follow a command that runs already. What it wrote before is not repeated.

        Raises `NotFound` if it has ended. Some providers still know the exit code of one that ended a moment ago.
        """

    async def processes(self) -> Sequence[BoxProcess]:
        """The commands and terminals that were started through the provider and still run."""


class FileWatch(Protocol):
    """Changes below a directory, until `stop`."""

    async def wait(self) -> None:
        """Returns after `stop`. Raises `SandboxGone` or `Unavailable` if the connection is lost."""

    async def stop(self) -> None: ...


class BoxFiles(Protocol):
    """Files in one sandbox. Everything raises `SandboxGone`, `Unavailable`."""

    async def write(self, path: str, content: bytes | AsyncIterable[bytes]) -> None:
        """Write a file, with the directories above it."""

    async def size(self, path: str) -> int:
        """Bytes in a file. Raises `NotFound`, or `InvalidRequest` for what is no file."""

    def read(self, path: str) -> AsyncIterator[bytes]:
        """A file in pieces. Raises `NotFound`."""

    async def entries(self, path: str) -> Sequence[FileEntry]:
        """What is in a directory. Raises `NotFound`, or `InvalidRequest` for what is no directory."""

    async def make_dir(self, path: str) -> None:
        """With the directories above it; nothing happens if it is there."""

    async def remove(self, path: str) -> None:
        """A file, or a directory with all that is in it. Raises `NotFound`."""

    async def watch(self, path: str, *, recursive: bool, on_change: OnChange) -> FileWatch:
        """Report changes in a directory. Raises `NotFound`, or `InvalidRequest` for what is no directory."""


class Terminal(Protocol):
    """A shell with a terminal (PTY) in a sandbox."""

    pid: int

    async def wait(self) -> int:
        """Its exit code. Raises `SandboxGone` or `Unavailable` if the connection to it is lost."""

    async def write(self, data: bytes) -> None:
        """Type. Raises `NotFound` if it has ended."""

    async def resize(self, size: TerminalSize) -> None:
        """Raises `NotFound` if it has ended."""

    async def kill(self) -> None:
        """End it; nothing happens if it has ended."""

    async def detach(self) -> None:
        """Stop following it. The shell goes on."""


class BoxTerminals(Protocol):
    """Terminals in one sandbox. Everything raises `SandboxGone`, `Unavailable`."""

    async def open(
        self, size: TerminalSize, *, cwd: str | None, envs: Mapping[str, str], user: str | None, on_data: OnData
    ) -> Terminal:
        """Start a login shell. `on_data` is awaited: a slow taker slows the shell, and nobody else."""

    async def attach(self, pid: int, on_data: OnData) -> Terminal:
        """Follow a terminal that is open already. Raises `NotFound`."""


class Box(Protocol):
    """Acting in one sandbox."""

    @property
    def commands(self) -> BoxCommands: ...

    @property
    def files(self) -> BoxFiles: ...

    @property
    def terminals(self) -> BoxTerminals: ...

    def url(self, port: int) -> str:
        """Where others reach a port of it."""

    def address(self, port: int) -> PortAddress:
        """Where we reach a port of it, also where host names of sandboxes do not resolve, or its ports are private."""


class Provider(Protocol):
    """Creates, finds and ends sandboxes. Everything raises `Unavailable`, `ProviderRefused`."""

    name: str
    template: str | None  # the default template
    timeout_s: int

    async def create(self, spec: SandboxSpec) -> str:
        """Create a sandbox and return its id. Safe to repeat: a session that has one gets the same id again."""

    async def connect(self, sandbox_id: str, timeout_s: int) -> Box:
        """Connect to it; it is resumed if it is paused. Raises `SandboxGone`."""

    async def pause(self, sandbox_id: str) -> None:
        """Pause it to disk; nothing happens if it is paused already. Raises `SandboxGone`."""

    async def kill(self, sandbox_id: str) -> None:
        """End it; nothing happens if it has ended."""

    async def set_timeout(self, sandbox_id: str, timeout_s: int) -> None:
        """Raises `SandboxGone`."""

    async def find(self, sandbox_id: str) -> ProviderSandbox | None:
        """The sandbox of this id, or None."""

    async def inventory(self) -> Sequence[ProviderSandbox]:
        """Every sandbox that this platform created, running or paused."""


@runtime_checkable
class Snapshotting(Protocol):
    """A provider whose sandboxes can begin with the state of another one."""

    async def snapshot(self, sandbox_id: str, name: str) -> str:
        """Take a snapshot of a sandbox, which runs on. Returns the name of a template. Raises `SandboxGone`."""

    async def drop_snapshot(self, snapshot_id: str) -> None:
        """Nothing happens if there is none."""


class Aggregate(Protocol):
    """A frozen record that is changed as a whole, by one writer at a time: its revision counts the changes."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def id(self) -> str: ...

    @property
    def revision(self) -> int: ...


Record = TypeVar("Record", bound=Aggregate)


class AggregateStore(Protocol[Record]):
    """Records of one kind. A change and the events about it are one transaction."""

    async def add(self, record: Record, *events: Event) -> None:
        """Raises `Conflict` if there is one like it already."""

    async def get(self, id: str) -> Record | None: ...

    async def swap(self, old: Record, new: Record, *events: Event) -> Record:
        """Replace `old` by `new` if nobody changed it meanwhile, and log the events. Raises `Conflict`."""


class SessionStore(AggregateStore[Session], Protocol):
    async def by_name(self, user_id: str, session_id: str) -> Session | None:
        """The live one."""

    async def of_provider_sandbox(self, sandbox_id: str, *, include_ended: bool = False) -> Session | None:
        """The live one with this sandbox of its provider; the last one, if ended ones count."""

    async def touch(self, session: str, at: datetime) -> None:
        """Note a use. Does not change the revision."""

    async def query(
        self,
        *,
        user_id: str | None = None,
        statuses: Collection[SessionStatus] | None = None,
        limit: int | None = None,
        after: tuple[datetime, str] | None = None,
    ) -> Sequence[Session]:
        """Newest first; `after` continues a page."""

    async def purge(self, ended_before: datetime) -> int: ...


class CommandStore(AggregateStore[BackgroundCommand], Protocol):
    async def running(self, sandbox_id: str | None = None) -> Sequence[BackgroundCommand]:
        """Those that have not ended, oldest first; of all sandboxes, or of one."""

    async def purge(self, ended_before: datetime) -> int: ...


EVERYTHING = EventFilter()


class EventStore(Protocol):
    async def append(self, *events: Event) -> None: ...

    async def last_id(self) -> int: ...

    async def after(self, cursor: int, limit: int, chosen: EventFilter = EVERYTHING) -> Sequence[Event]:
        """The chosen events after the cursor, in order."""

    async def forgot(self, cursor: int, user_id: str | None) -> bool:
        """Whether events after the cursor may have been purged: of this user, or of anybody."""

    async def purge(self, before: datetime) -> int: ...


class DeliveryStore(Protocol):
    async def due(self, now: datetime, limit: int) -> Sequence[Delivery]: ...

    async def delivered(self, delivery: int) -> None: ...

    async def postpone(self, delivery: int, until: datetime, problem: str) -> None: ...

    async def give_up(self, delivery: int, problem: str) -> None: ...

    async def backlog(self) -> Mapping[str, WebhookBacklog]:
        """What has not arrived, by webhook."""


class KeyStore(Protocol):
    async def add(self, key: UserKey) -> None: ...

    async def by_digest(self, digest: str) -> UserKey | None: ...

    async def keys(self) -> Sequence[UserKey]: ...

    async def revoke(self, key: str, at: datetime) -> bool: ...

    async def touch(self, key: str, at: datetime) -> None:
        """Note a use."""


class WebhookTransport(Protocol):
    """Sends signed messages to webhooks."""

    async def send(self, webhook: Webhook, body: bytes, headers: Mapping[str, str]) -> None:
        """Raises `Unavailable` unless the receiver accepted it."""
