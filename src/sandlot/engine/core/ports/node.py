"""A node: one host's worth of machines, in three small protocols and a proxy.

A node may be another host. So every record that goes in or comes out serialises, nothing is called back, and what a node
does by itself (a machine ends, capacity changes) is read from it with a cursor.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping, Sequence
from typing import Any, Protocol

from sandlot.engine.core.model import (
    Checkpoint,
    EgressReport,
    LogEntry,
    Machine,
    NetworkPolicy,
    NewMachine,
    NodeEvents,
    NodeStatus,
    PauseMode,
    ProxyTarget,
    RunningMachine,
    Usage,
)

# ASGI, as far as the proxy speaks it.
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class NodeMachines(Protocol):
    """Starting, changing and ending machines. A machine is named by the id of its sandbox."""

    async def start(self, new: NewMachine) -> Machine:
        """A machine whose envd answers and has its identity. All or nothing.

        The node picks the quickest way: a machine of its warm pool, a boot snapshot, a cold boot.
        """

    async def adopt(self, running: RunningMachine) -> None:
        """Take over a machine that an earlier process started: watch it, restore its network relays. Raises `NotFound`."""

    async def stop(self, sandbox_id: str) -> None:
        """End the machine and free everything the sandbox owns on this host, its checkpoint too. Idempotent."""

    async def list(self) -> Sequence[Machine]:
        """The machines of sandboxes that are alive, found by looking at the host."""

    async def set_network(self, sandbox_id: str, policy: NetworkPolicy) -> None: ...

    async def usage(self, sandbox_id: str) -> Usage: ...

    async def logs(self, sandbox_id: str) -> Sequence[LogEntry]:
        """What the guest's daemon logged: untrusted text, bounded in size. Empty for unknown sandboxes."""


class NodeSnapshots(Protocol):
    """Machines' state on the node's disk: pausing, resuming, capturing."""

    async def pause(self, sandbox_id: str, *, memory: bool) -> PauseMode:
        """Drain its connections, take the machine off the host and keep its state, all of it or its files.

        On failure the machine goes on. Raises `InvalidRequest` if its runtime cannot pause, `NoCapacity` if there is no
        room for the state.
        """

    async def resume(self, new: NewMachine) -> Machine:
        """The paused machine again. On failure it stays paused. Raises `StateUnusable` if its state is not usable."""

    async def recover(self, new: NewMachine) -> Machine | PauseMode:
        """Find out what is left of a machine whose pause, resume or capture was interrupted, and bring it to an end.

        The machine: it goes on, and no state of its own is kept. The mode: it is paused, and its state is whole. Raises
        `NotFound` if nothing is left.
        """

    async def capture(self, sandbox_id: str, name: str, *, memory: bool, lasting: bool = True) -> Checkpoint:
        """Drain its connections and keep its state under a name; the machine goes on.

        What is not `lasting` may be lost with the host.
        """

    async def list(self) -> Mapping[str, Checkpoint]:
        """The checkpoints of this node, by name."""

    async def discard(self, name: str) -> None:
        """Delete a checkpoint. Machines that began with it are not touched. Idempotent."""


class NodeHost(Protocol):
    """The host itself: what it can take, what happened on it, what it may forget."""

    async def status(self) -> NodeStatus: ...

    async def events(self, cursor: str, *, wait_s: float) -> NodeEvents:
        """What happened behind the cursor, and how the node is now; waits up to `wait_s` for news.

        An empty cursor means from now on.
        """

    async def egress(self) -> EgressReport:
        """What left sandboxes since this was last asked."""

    async def sweep(self, keep: Collection[str]) -> Sequence[str]:
        """Free what is under no name in `keep` (machines, slots, mounts, cgroups, checkpoints); say what was freed."""

    async def forget_template(self, template_id: str) -> None:
        """The template is gone, or is another one now: what was prepared for it goes."""

    async def layers_in_use(self) -> frozenset[str]:
        """Layers that machines and checkpoints of this host need."""


class NodeProxy(Protocol):
    """Connections into the machines of a node."""

    async def forward(self, target: ProxyTarget, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one HTTP request or WebSocket to a service in a sandbox, and its answer back.

        Raises a `ForwardFailed`, and has sent nothing, if the service cannot be asked; nothing of the request is used up
        when it is `Draining`. Once an answer has begun, a failure cuts the client's connection.
        """


class Node(Protocol):
    """One host, as the control plane and the gateway know it."""

    @property
    def name(self) -> str: ...

    @property
    def machines(self) -> NodeMachines: ...

    @property
    def snapshots(self) -> NodeSnapshots: ...

    @property
    def host(self) -> NodeHost: ...

    @property
    def proxy(self) -> NodeProxy: ...
