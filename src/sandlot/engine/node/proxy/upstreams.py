"""Connections into machines: a pool and the exchanges in progress of each sandbox, and how they end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Iterator

import aiohttp

from sandlot.engine.core.errors import Draining, TooManyConnections

CONNECT_S = 5.0
# Shorter than the idle time after which common servers close (uvicorn and Node: 5 s), so that a request is
# hardly ever written to a connection that its other end is about to close.
KEEP_ALIVE_S = 3.0
RELAY_S = 30.0
MOST_RELAYS = 256
HEADER_LIMIT = 64 * 1024
NO_AUTOMATIC_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class ConnectionCut(Exception):
    """Raised through a response that has begun: the server then cuts the connection instead of ending it cleanly.

    A clean end would look like the complete answer; the SDKs take a cut for what it is and ask what happened.
    """

    on_purpose = True  # nothing for the server's log to complain about


class Exchange:
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


class Upstream:
    """All that is open into one machine. It has its own connection pool: an address may belong to another sandbox later."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.exchanges: set[Exchange] = set()
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
        for exchange in tuple(self.exchanges):
            exchange.end()

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


class Upstreams:
    """The machines that are connected to, by sandbox id."""

    def __init__(self, most_per_sandbox: int) -> None:
        self.most_per_sandbox = most_per_sandbox
        self._open: dict[str, Upstream] = {}
        self._closed: set[str] = set()
        self._closing: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def exchange(self, sandbox_id: str, address: str) -> AsyncIterator[tuple[Upstream, Exchange]]:
        """Count one exchange of this sandbox as open. Raises `TooManyConnections` or `Draining`."""
        if sandbox_id in self._closed:
            raise Draining(f"sandbox {sandbox_id} is about to be paused")
        upstream = self._upstream(sandbox_id, address)
        if len(upstream.exchanges) >= self.most_per_sandbox:
            raise TooManyConnections(self.most_per_sandbox)
        task = asyncio.current_task()
        assert task is not None
        exchange = Exchange(task)
        upstream.exchanges.add(exchange)
        upstream.empty.clear()
        try:
            yield upstream, exchange
        finally:
            exchange.ended = True
            upstream.exchanges.discard(exchange)
            if not upstream.exchanges:
                upstream.empty.set()

    def _upstream(self, sandbox_id: str, address: str) -> Upstream:
        upstream = self._open.get(sandbox_id)
        if upstream is not None and upstream.address != address:  # resumed on another slot
            self.cut(sandbox_id)
            upstream = None
        if upstream is None:
            upstream = self._open[sandbox_id] = Upstream(address)
        return upstream

    @contextlib.contextmanager
    def closed(self, sandbox_id: str) -> Iterator[None]:
        """While inside, no new exchange with this sandbox begins."""
        self._closed.add(sandbox_id)
        try:
            yield
        finally:
            self._closed.discard(sandbox_id)

    async def drain(self, sandbox_id: str, grace_s: float) -> int:
        """Wait for open exchanges to end, then cut the rest; return how many were cut."""
        upstream = self._open.get(sandbox_id)
        if upstream is None:
            return 0
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(upstream.empty.wait(), grace_s)
        cut = len(upstream.exchanges)
        self.cut(sandbox_id)
        return cut

    def cut(self, sandbox_id: str) -> None:
        """The machine is gone or going: cut what is open and forget its connections."""
        upstream = self._open.pop(sandbox_id, None)
        if upstream is not None:
            upstream.end()
            self._in_background(upstream.close())

    def open_count(self, sandbox_id: str | None = None) -> int:
        if sandbox_id is None:
            return sum(len(upstream.exchanges) for upstream in self._open.values())
        upstream = self._open.get(sandbox_id)
        return len(upstream.exchanges) if upstream else 0

    async def close(self) -> None:
        for sandbox_id in tuple(self._open):
            self.cut(sandbox_id)
        await asyncio.gather(*self._closing)

    def _in_background(self, closing: Awaitable[None]) -> None:
        task = asyncio.ensure_future(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
