"""Open ways into sandboxes: the pooled connections and the exchanges in progress of each sandbox, and their end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp

from sandlot.engine.core.errors import EngineError
from sandlot.engine.core.model import ENVD_PORT, Sandbox

Dial = Callable[[Sandbox, int], tuple[str, int]]
Relay = Callable[[str, int], Awaitable[int | None]]

CONNECT_S = 5.0
# Shorter than the idle time after which common servers close (uvicorn and Node: 5 s), so that a request is
# hardly ever written to a connection that its other end is about to close.
KEEP_ALIVE_S = 3.0
RELAY_S = 30.0
RELAY_ASK_S = 10.0
MOST_RELAYS = 256
HEADER_LIMIT = 64 * 1024
NO_AUTOMATIC_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class SandboxGone(Exception):
    """Raised through a response that has begun: the server then cuts the connection instead of ending it cleanly.

    A clean end would look like the complete answer; the SDKs take a cut for what it is and ask what happened.
    """

    on_purpose = True  # nothing for the server's log to complain about


class Passage:
    """One exchange in progress. Whoever ends it says why; its own task then unwinds."""

    __slots__ = ("_task", "client_left", "ended")

    def __init__(self, task: asyncio.Task[object]) -> None:
        self._task = task
        self.ended = False
        self.client_left = False

    def leave(self) -> None:
        """The client is gone: nobody needs the answer."""
        self.client_left = True
        self.end()

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            self._task.cancel()

    def caught(self) -> bool:
        """Whether a cancellation was ours; if so it is taken back, and the task goes on to say goodbye."""
        if self.ended:
            self._task.uncancel()
        return self.ended


class Way:
    """All that is open into one machine: its own connection pool, so that an address given to another sandbox is never reused."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.address = sandbox.machine.address if sandbox.machine else ""
        self.passages: set[Passage] = set()
        self.draining = False
        self._relays: dict[int, tuple[float, int]] = {}
        self.empty = asyncio.Event()
        self.empty.set()
        self.session = _new_session()

    def relayed(self, port: int) -> int:
        known = self._relays.get(port)
        if known is None or known[0] < time.monotonic():
            return port
        return known[1]

    def relay(self, port: int, through: int) -> None:
        if len(self._relays) >= MOST_RELAYS:
            self._relays.clear()
        self._relays[port] = (time.monotonic() + RELAY_S, through)

    def forget_relay(self, port: int) -> bool:
        return self._relays.pop(port, None) is not None

    def end(self) -> None:
        for passage in tuple(self.passages):
            passage.end()

    async def close(self) -> None:
        await self.session.close()


def _new_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, use_dns_cache=False),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=NO_AUTOMATIC_HEADERS,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        read_bufsize=64 * 1024,
        max_line_size=HEADER_LIMIT,
        max_field_size=HEADER_LIMIT,
        max_headers=1000,
    )


class TooManyConnections(Exception):
    """The sandbox has as many exchanges in progress as one may have."""


class Draining(Exception):
    """The sandbox is about to pause: no new exchanges."""


class Ways:
    """The open ways by sandbox id."""

    def __init__(self, dial: Dial, relay: Relay, most_per_sandbox: int) -> None:
        self.dial, self._relay, self.most_per_sandbox = dial, relay, most_per_sandbox
        self._ways: dict[str, Way] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def passage(self, sandbox: Sandbox) -> AsyncIterator[tuple[Way, Passage]]:
        """Count one exchange of this sandbox as open. Raises `TooManyConnections` or `Draining`."""
        way = self._way(sandbox)
        if way.draining:
            raise Draining
        if len(way.passages) >= self.most_per_sandbox:
            raise TooManyConnections
        task = asyncio.current_task()
        assert task is not None
        passage = Passage(task)
        way.passages.add(passage)
        way.empty.clear()
        try:
            yield way, passage
        finally:
            passage.ended = True
            way.passages.discard(passage)
            if not way.passages:
                way.empty.set()

    def _way(self, sandbox: Sandbox) -> Way:
        way = self._ways.get(sandbox.id)
        address = sandbox.machine.address if sandbox.machine else ""
        if way is not None and way.address != address:  # resumed on another slot
            self.close(sandbox.id)
            way = None
        if way is None:
            way = self._ways[sandbox.id] = Way(sandbox)
        return way

    async def find_relay(self, way: Way, sandbox_id: str, port: int) -> int | None:
        """Ask the machine for a way to a service on its loopback. envd itself is never relayed."""
        if port == ENVD_PORT:
            return None
        try:
            through = await asyncio.wait_for(self._relay(sandbox_id, port), RELAY_ASK_S)
        except (EngineError, TimeoutError):  # a daemon that does not answer knows of no open port
            return None
        if through is not None and 0 < through < 65536:
            way.relay(port, through)
            return through
        return None

    def close(self, sandbox_id: str) -> None:
        """The machine is gone or going: cut what is open and forget its connections."""
        way = self._ways.pop(sandbox_id, None)
        if way is not None:
            way.end()
            self._in_background(way.close())

    async def drain(self, sandbox_id: str, grace_s: float) -> int:
        """Let no new exchange in, wait for open ones to end, then cut the rest; return how many were cut."""
        way = self._ways.get(sandbox_id)
        if way is None:
            return 0
        way.draining = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(way.empty.wait(), grace_s)
        cut = len(way.passages)
        self.close(sandbox_id)
        return cut

    def open_count(self, sandbox_id: str | None = None) -> int:
        if sandbox_id is None:
            return sum(len(way.passages) for way in self._ways.values())
        way = self._ways.get(sandbox_id)
        return len(way.passages) if way else 0

    async def close_all(self) -> None:
        for sandbox_id in tuple(self._ways):
            self.close(sandbox_id)
        await asyncio.gather(*self._closing)

    def _in_background(self, closing: Awaitable[None]) -> None:
        task = asyncio.ensure_future(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
