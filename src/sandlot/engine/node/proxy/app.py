"""The node proxy: passes requests into this host's machines. It keeps their connections, thaws them, drains them."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from typing import Protocol

from sandlot.engine.core.errors import EngineError, NotFound, SandboxLeft
from sandlot.engine.core.model import ENVD_PORT, ProxyTarget
from sandlot.engine.core.ports.node import Receive, Scope, Send
from sandlot.engine.node.envd.client import EnvdClient
from sandlot.engine.node.idle_freezer import IdleFreezer
from sandlot.engine.node.machine_table import LiveMachine
from sandlot.engine.node.proxy.forwarding import Dial, Forwarding
from sandlot.engine.node.proxy.http import forward_http
from sandlot.engine.node.proxy.upstreams import Upstreams
from sandlot.engine.node.proxy.websocket import forward_websocket

MOST_CONNECTIONS = 1000
RELAY_S = 10.0


class LiveMachines(Protocol):
    def known(self, sandbox_id: str) -> LiveMachine:
        """Raises `NotFound`."""


def dial_machine(address: str, port: int) -> tuple[str, int]:
    return address, port


class LocalProxy:
    """Machines are found in the table, thawed by the freezer; envd opens relays to the guest's loopback."""

    def __init__(
        self,
        *,
        machines: LiveMachines,
        freezer: IdleFreezer,
        envd: EnvdClient,
        most_per_sandbox: int = MOST_CONNECTIONS,
        dial: Dial = dial_machine,
    ) -> None:
        self._machines, self._freezer, self._envd = machines, freezer, envd
        self._upstreams, self._dial = Upstreams(most_per_sandbox), dial

    async def forward(self, target: ProxyTarget, scope: Scope, receive: Receive, send: Send) -> None:
        live = self._live(target.sandbox_id)
        async with (
            self._upstreams.exchange(target.sandbox_id, live.machine.address) as (upstream, exchange),
            self._freezer.thawed(target.sandbox_id),
        ):
            scope["forwarded"] = True  # for the server, which gives streams into sandboxes less patience
            forwarding = Forwarding(scope, receive, send, target, upstream, exchange, self._dial, self._relay)
            await (forward_http(forwarding) if scope["type"] == "http" else forward_websocket(forwarding))

    def _live(self, sandbox_id: str) -> LiveMachine:
        try:
            return self._machines.known(sandbox_id)
        except NotFound as error:
            raise SandboxLeft(str(error)) from None

    async def _relay(self, sandbox_id: str, port: int) -> int | None:
        """Ask the guest for a way to a service on its loopback. envd itself is never relayed."""
        if port == ENVD_PORT:
            return None
        live = self._live(sandbox_id)
        try:
            return await asyncio.wait_for(self._envd.relay(live.machine.address, live.token, port), RELAY_S)
        except (EngineError, TimeoutError):  # a daemon that does not answer knows of no open port
            return None

    def closed(self, sandbox_id: str) -> AbstractContextManager[None]:
        """While inside, nothing new gets into this sandbox."""
        return self._upstreams.closed(sandbox_id)

    async def drain(self, sandbox_id: str, grace_s: float) -> int:
        return await self._upstreams.drain(sandbox_id, grace_s)

    def cut(self, sandbox_id: str) -> None:
        self._upstreams.cut(sandbox_id)

    def open_count(self, sandbox_id: str | None = None) -> int:
        return self._upstreams.open_count(sandbox_id)

    async def close(self) -> None:
        await self._upstreams.close()
