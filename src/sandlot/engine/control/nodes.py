"""The nodes of this control plane: found by name, followed for machines that end by themselves, described for placement."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from weakref import WeakValueDictionary

from sandlot.engine.core.errors import EngineError, Unavailable
from sandlot.engine.core.header_rules import secret_names
from sandlot.engine.core.model import MachineExited, NodeStatus, Sandbox
from sandlot.engine.core.ports import Node

log = logging.getLogger(__name__)

WAIT_S = 20.0  # how long a node may hold the question for news
RETRY_S = 1.0


SecretValues = Callable[[str, Collection[str]], Awaitable[Mapping[str, str]]]  # of a team's secrets, by name


async def no_secrets(team_id: str, names: Collection[str]) -> Mapping[str, str]:
    return {}


class Nodes:
    """Nodes by name. `statuses` are as of the last look."""

    def __init__(self, nodes: Iterable[Node], secrets: SecretValues = no_secrets) -> None:
        self._nodes: Mapping[str, Node] = {node.name: node for node in nodes}
        self._secrets = secrets
        self._statuses: dict[str, NodeStatus] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def get(self, name: str) -> Node:
        node = self._nodes.get(name)
        if node is None:
            raise Unavailable(f"node {name!r} is not one of this server's")
        return node

    def of(self, sandbox: Sandbox) -> Node:
        return self.get(sandbox.node)

    async def told(self, sandbox: Sandbox) -> Sandbox:
        """The row as a node is told it: with the values of the secrets that its network rules name. It is written nowhere."""
        names = secret_names(sandbox.network.rules)
        if not names:
            return sandbox
        values = await self._secrets(sandbox.team_id, names)
        return replace(sandbox, network=replace(sandbox.network, secrets=values))

    def statuses(self) -> tuple[NodeStatus, ...]:
        return tuple(self._statuses.values())

    async def look(self) -> tuple[NodeStatus, ...]:
        """Ask every node how it is. One that does not answer is not healthy, and gets no new machines."""
        for name, node in self._nodes.items():
            try:
                self._statuses[name] = await node.host.status()
            except EngineError as error:
                log.error("node %s does not say how it is: %s", name, error)
                self._statuses.pop(name, None)
        return self.statuses()

    @contextlib.asynccontextmanager
    async def no_new_machines(self, name: str) -> AsyncIterator[None]:
        """While held, no row and no machine appears on this node that was not there before. Others go on."""
        lock = self._locks.setdefault(name, asyncio.Lock())
        async with lock:
            yield

    async def follow(self, exited: Callable[[MachineExited], Awaitable[None]]) -> None:
        """Hand on, for as long as the server runs, every machine that ends by itself."""
        async with asyncio.TaskGroup() as group:
            for node in self._nodes.values():
                group.create_task(self._follow(node, exited))

    async def _follow(self, node: Node, exited: Callable[[MachineExited], Awaitable[None]]) -> None:
        cursor = ""
        while True:
            try:
                page = await node.host.events(cursor, wait_s=WAIT_S)
                for exit in page.exits:
                    log.warning("the machine of sandbox %s ended by itself: %s", exit.sandbox_id, exit.exit.reason)
                    await exited(exit)
                cursor, self._statuses[node.name] = page.cursor, page.status
            except EngineError as error:  # what is missed meanwhile, the reconciler finds
                log.error("node %s cannot be followed; it is tried again: %s", node.name, error)
                await asyncio.sleep(RETRY_S)
