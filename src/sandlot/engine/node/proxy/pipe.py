"""Two connections joined to one: what comes in at one end goes out at the other, and next to nothing is held in between."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

from sandlot.engine.node.proxy.frames import PING, FrameTracker, close, control

READ_MOST, READ_LEAST = 64 << 10, 4 << 10
UNSENT = 1 << 10  # more than this that one end does not take, and the other is not read from
PING_S = 30.0
SILENCE_S = 150.0
LINGER_S = 10.0
# What is read is handed on before the next one reads, so that all can read into the same place.
_scratch = memoryview(bytearray(READ_MOST))


def share(budget: int, open_count: int) -> int:
    """How much one of so many may have on its way each way."""
    return max(READ_LEAST, min(READ_MOST, budget // (2 * max(1, open_count))))


class _End(asyncio.BufferedProtocol):
    """One of the two connections. `owner` is whoever had it before, and wants to know when it is lost."""

    def __init__(self, transport: asyncio.Transport, owner: asyncio.BaseProtocol, frames: FrameTracker) -> None:
        self.transport, self.owner, self.frames = transport, owner, frames
        self.is_full = False  # it does not take what it is sent
        self.is_lost = False
        self._is_held = True  # it is not read from
        self.pipe: Pipe | None = None

    def begin(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self.transport.set_write_buffer_limits(high=UNSENT, low=0)
        self.transport.set_protocol(self)
        self.go_on()

    def get_buffer(self, sizehint: int) -> memoryview:
        assert self.pipe is not None
        return _scratch[: self.pipe.share()]

    def buffer_updated(self, nbytes: int) -> None:
        assert self.pipe is not None
        self.pipe.pass_on(self, bytes(_scratch[:nbytes]))

    def eof_received(self) -> None:
        return None  # the transport closes

    def connection_lost(self, exc: Exception | None) -> None:
        assert self.pipe is not None
        self.is_lost = True
        self.owner.connection_lost(exc)
        self.pipe.lost(self)

    def pause_writing(self) -> None:
        assert self.pipe is not None
        self.is_full = True
        self.pipe.other(self).hold()

    def resume_writing(self) -> None:
        assert self.pipe is not None
        self.is_full = False
        self.pipe.other(self).go_on()

    def write(self, data: bytes) -> None:
        if data and not self.transport.is_closing():
            self.transport.write(data)

    def hold(self) -> None:
        if not self._is_held and not self.transport.is_closing():
            self._is_held = True
            self.transport.pause_reading()

    def go_on(self) -> None:
        if self._is_held and not self.transport.is_closing():
            self._is_held = False
            self.transport.resume_reading()


class Pipe:
    """A client's WebSocket and a service's, frame for frame as they are sent. It answers for the connection, not for what is said.

    `share` tells how much may be on its way in each direction; it changes with the number of WebSockets of the sandbox.
    """

    def __init__(self, share: Callable[[], int]) -> None:
        self.share = share
        self._loop = asyncio.get_running_loop()
        self._mark = secrets.token_bytes(8)  # of our own pings
        self._heard_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._ended = asyncio.Event()
        self._client_lost = asyncio.Event()

    def begin(
        self,
        client: tuple[asyncio.Transport, asyncio.BaseProtocol],
        service: tuple[asyncio.Transport, asyncio.BaseProtocol],
        early: bytes,
    ) -> None:
        """`early`: what the service has said already."""
        self._client = _End(*client, FrameTracker(is_own=lambda content: content == self._mark))
        self._service = _End(*service, FrameTracker())
        self._client.begin(self)
        self._service.begin(self)
        self.pass_on(self._service, early)
        self._timer = self._loop.call_later(PING_S, self._ping)

    async def ended(self) -> str | None:
        """Until one of them is gone. Returns why the service is, if it went without a word."""
        await self._ended.wait()
        if self._client.is_lost or self._service.frames.said_goodbye:
            return None
        return "the sandbox closed the connection"

    @property
    def client_left(self) -> bool:
        return self._client.is_lost

    async def end(self, goodbye: tuple[int, str] | None) -> None:
        """Let each have what was meant for it, for a while; tell the client why it ends, where that can be told."""
        if self._timer is not None:
            self._timer.cancel()
        if goodbye is not None and self._service.frames.is_between and not self._service.frames.said_goodbye:
            self._client.write(close(*goodbye))
        self._service.transport.close() if self._client.is_lost else self._service.transport.abort()
        self._client.go_on()  # what it still says is dropped; its answer to a goodbye, say
        try:
            async with asyncio.timeout(LINGER_S):
                await self._client_lost.wait()
        except TimeoutError:
            pass
        finally:
            self._client.transport.abort()
            self._service.transport.abort()

    def pass_on(self, end: _End, data: bytes) -> None:
        if end is self._client:
            self._heard_at = self._loop.time()
        self.other(end).write(end.frames.feed(data))

    def other(self, end: _End) -> _End:
        return self._service if end is self._client else self._client

    def lost(self, end: _End) -> None:
        if end is self._client:
            self._client_lost.set()
        self._ended.set()

    def _ping(self) -> None:
        """Show proxies on the way that the connection is used, and find out that a client is gone."""
        self._timer = self._loop.call_later(PING_S, self._ping)
        if self._loop.time() - self._heard_at > SILENCE_S and not self._service.is_full:
            self._client.transport.abort()
        elif self._service.frames.is_between and not self._client.is_full:
            self._client.write(control(PING, self._mark))
