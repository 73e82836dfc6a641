"""Tunnels into sandboxes, each kept open by itself: over pauses, restarts and lost connections, until it is closed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from sandlot.platform.core.errors import NotFound, PlatformError, Unavailable
from sandlot.platform.core.ports import Box
from sandlot.platform.tunnel.connection import Connection
from sandlot.platform.tunnel.limits import LIMITS, TunnelLimits
from sandlot.platform.tunnel.relay import connect_relay
from sandlot.platform.tunnel.routes import RouteApp, TunnelServer

log = logging.getLogger(__name__)
FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 5.0
READY_S = 60.0
Reach = Callable[[str], Awaitable[Box | None]]
"""The sandbox of this id, to act in; None while it is paused or starts: a tunnel wakes nothing. Raises `NotFound`."""


class Tunnel:
    """One sandbox's way to its routes. Made by `Tunnels.open`."""

    def __init__(
        self,
        sandbox_id: str,
        name: str,
        server: TunnelServer,
        reach: Reach,
        limits: TunnelLimits,
        *,
        has_relay: bool = True,
    ) -> None:
        self.sandbox_id, self.name, self._has_relay = sandbox_id, name, has_relay
        self._server, self._reach, self._limits = server, reach, limits
        self._connection: Connection | None = None
        self._changed, self._hurry = asyncio.Event(), asyncio.Event()
        self._problem: PlatformError = Unavailable("it was not tried yet")
        self._keeping = asyncio.create_task(self._keep())

    def on_end(self, call: Callable[[Tunnel], None]) -> None:
        """`call` it once it is closed, or its sandbox has ended."""
        self._keeping.add_done_callback(lambda _: call(self))

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    async def ready(self, within_s: float = READY_S) -> None:
        """Returns when it is connected. Raises `NotFound` if the sandbox has ended, and `Unavailable`."""
        self._hurry.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._connection is None and not self._keeping.done():
                    self._changed.clear()
                    await self._changed.wait()
        if self._connection is not None:
            return
        if self._keeping.done() and isinstance(self._problem, NotFound):
            raise self._problem
        raise Unavailable(f"the tunnel into sandbox {self.sandbox_id!r} is not open: {self._problem}")

    async def close(self, *, keep_relay: bool = False) -> None:
        """End it, and the relay in the sandbox with it, unless it is to wait for the next tunnel."""
        if self._connection is not None and not keep_relay:
            await self._connection.leave()
        self._keeping.cancel()
        await asyncio.gather(self._keeping, return_exceptions=True)
        self._changed.set()
        await self._server.close()

    async def _keep(self) -> None:
        wait_s = FIRST_WAIT_S
        while True:
            try:
                if await self._carry():
                    wait_s = FIRST_WAIT_S
            except NotFound as error:
                self._problem = error
                self._changed.set()
                return
            except PlatformError as error:
                self._problem = error
            except Exception:
                log.exception("the tunnel into sandbox %r", self.sandbox_id)
                self._problem = Unavailable("an error of ours; the server's log has it")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._hurry.wait()
            self._hurry.clear()
            wait_s = min(wait_s * 2, LONGEST_WAIT_S)

    async def _carry(self) -> bool:
        """One connection, until it ends. Whether it lasted: one that does not is tried again less and less often."""
        box = await self._reach(self.sandbox_id)
        if box is None:
            self._problem = Unavailable("the sandbox is not running")
            return False
        has_relay, self._has_relay = self._has_relay, True
        connection = await connect_relay(box, self._server.speaker, self._limits, has_relay=has_relay)
        began = time.monotonic()
        try:
            self._connection = connection
            self._changed.set()
            why = await connection.run()
            self._problem = Unavailable(why)
            log.debug("the connection of tunnel %r is over: %s", self.name, why)
        finally:
            self._connection = None
            await connection.close()
        return time.monotonic() - began > LONGEST_WAIT_S


class Tunnels:
    """All tunnels of this platform, one for each sandbox."""

    def __init__(self, reach: Reach, limits: TunnelLimits = LIMITS) -> None:
        self._reach, self._limits = reach, limits
        self._tunnels: dict[str, Tunnel] = {}
        self._is_closed = False

    async def open(
        self, sandbox_id: str, name: str, routes: Mapping[str, RouteApp], *, has_relay: bool = True
    ) -> Tunnel:
        """Begin to connect; `Tunnel.ready` waits for it. A sandbox's earlier tunnel is closed: its routes are gone.

        `has_relay`: one may run there; otherwise none is looked for before one is started.
        """
        former = self._tunnels.pop(sandbox_id, None)
        if former is not None:
            await former.close(keep_relay=True)
        if self._is_closed:
            raise Unavailable("the platform is stopping")
        server = TunnelServer(routes, self._limits)
        tunnel = Tunnel(sandbox_id, name, server, self._reach, self._limits, has_relay=has_relay)
        self._tunnels[sandbox_id] = tunnel
        tunnel.on_end(self._forget)
        return tunnel

    def _forget(self, tunnel: Tunnel) -> None:
        if self._tunnels.get(tunnel.sandbox_id) is tunnel:
            del self._tunnels[tunnel.sandbox_id]

    async def close(self) -> None:
        """The relays stay, and wait for the platform's next start."""
        self._is_closed = True
        tunnels, self._tunnels = list(self._tunnels.values()), {}
        await asyncio.gather(*(tunnel.close(keep_relay=True) for tunnel in tunnels))
