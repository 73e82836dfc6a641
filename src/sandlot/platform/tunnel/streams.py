"""Streams over one connection: their numbers, credits and turns. Each is a transport to the HTTP server that speaks on it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from sandlot.platform.tunnel.frames import Kind, ProtocolViolation, pack, pack_credit, unpack, unpack_credit
from sandlot.platform.tunnel.limits import TunnelLimits

MOST_CREDIT = 1 << 31
Speaker = Callable[[], asyncio.Protocol]  # makes what serves one new stream


class TunnelStream(asyncio.Transport):
    """One connection from inside the sandbox, as the transport of a protocol. Nothing of it blocks, and all it holds is bounded."""

    def __init__(self, number: int, streams: Streams, protocol: asyncio.Protocol, limits: TunnelLimits) -> None:
        super().__init__()
        self.number, self._streams, self._protocol, self._limits = number, streams, protocol, limits
        self._allowed, self._consumed, self._waiting = limits.window, 0, deque[bytes]()  # from inside
        self.credit, self._unsent, self._unsent_bytes = limits.window, deque[memoryview](), 0  # to inside
        self._reads, self._has_ended, self._is_closing, self._is_held = True, False, False, False
        self._stalled_since: float | None = None

    # -- what the protocol calls --------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self._is_closing

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._is_closing or not data:
            return
        self._unsent.append(memoryview(data))
        self._unsent_bytes += len(data)
        self._streams.wants_turn(self)
        if self._unsent_bytes > self._limits.frame and not self._is_held:
            self._is_held = True
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        if not self._reads:
            self._reads = True
            asyncio.get_running_loop().call_soon(self._hand_over)

    def close(self) -> None:
        """After all that was written is sent."""
        if not self._is_closing:
            self._is_closing = True
            self._waiting.clear()
            self._streams.wants_turn(self)

    def abort(self) -> None:
        self._streams.reset(self)

    # -- what comes from the relay ------------------------------------------------------------------------------------

    def take(self, data: bytes) -> None:
        """Raises `ProtocolViolation` if it is more than was allowed."""
        self._allowed -= len(data)
        if self._allowed < 0 or self._has_ended:
            raise ProtocolViolation("more bytes than the stream has credit for")
        if not self._is_closing:
            self._waiting.append(data)
            self._hand_over()

    def ended(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._hand_over()

    def grant(self, count: int) -> None:
        self.credit += count
        if self.credit > MOST_CREDIT:
            raise ProtocolViolation("more credit than any stream can use")
        self._streams.wants_turn(self)

    def _hand_over(self) -> None:
        while self._reads and self._waiting and not self._is_closing:
            data = self._waiting.popleft()
            self._protocol.data_received(data)
            self._consumed += len(data)
        if self._consumed >= self._limits.window // 4 and not self._has_ended and not self._is_closing:
            self._allowed += self._consumed
            self._streams.tell(pack_credit(self.number, self._consumed))
            self._consumed = 0
        if self._has_ended and self._reads and not self._waiting and not self._is_closing:
            self._reads = False
            if not self._protocol.eof_received():
                self.close()

    # -- what the sender calls ----------------------------------------------------------------------------------------

    @property
    def can_send(self) -> bool:
        return bool(self._unsent) and self.credit > 0

    @property
    def is_finished(self) -> bool:
        return self._is_closing and not self._unsent

    def next_piece(self) -> bytes:
        """As much as one message, its credit and what is there allow."""
        most = min(self.credit, self._limits.frame)
        pieces, size = [], 0
        while self._unsent and size < most:
            first = self._unsent.popleft()
            if len(first) > most - size:
                self._unsent.appendleft(first[most - size :])
                first = first[: most - size]
            pieces.append(first)
            size += len(first)
        self._unsent_bytes -= size
        self.credit -= size
        self._stalled_since = None
        if self._is_held and self._unsent_bytes <= self._limits.frame // 4:
            self._is_held = False
            self._protocol.resume_writing()
        return b"".join(pieces)

    def is_stalled(self, now: float) -> bool:
        """Whether what is to be sent has been waiting for credit for too long."""
        if not self._unsent or self.credit:
            self._stalled_since = None
            return False
        self._stalled_since = self._stalled_since or now
        return now - self._stalled_since > self._limits.stall_s

    def lost(self) -> None:
        """It is over: the protocol learns it, and nothing is sent any more."""
        self._is_closing, self._reads = True, False
        self._unsent.clear()
        self._waiting.clear()
        self._unsent_bytes = 0
        if self._is_held:
            self._is_held = False
            self._protocol.resume_writing()
        asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)


class Streams:
    """The streams of one connection. `take` is given its messages, `next_message` has the next one to send."""

    def __init__(self, speaker: Speaker, limits: TunnelLimits) -> None:
        self._speaker, self._limits = speaker, limits
        self._streams: dict[int, TunnelStream] = {}
        self._last = 0
        self._stray_allowed = 0  # bytes that may still come for streams that ended here first
        self._told: deque[bytes] = deque()
        self._turns: dict[int, TunnelStream] = {}  # in the order of their turns
        self._something = asyncio.Event()

    def __len__(self) -> int:
        return len(self._streams)

    def take(self, message: bytes) -> None:
        """Raises `ProtocolViolation`."""
        kind, number, payload = unpack(message)
        if kind is Kind.OPEN:
            self._open(number)
        elif kind is Kind.PING:
            self.tell(pack(Kind.PONG, 0, payload[:64]))
        elif kind in (Kind.DATA, Kind.END, Kind.RESET, Kind.CREDIT):
            self._about(kind, number, payload)
        elif kind is not Kind.PONG:
            raise ProtocolViolation(f"a relay says no {kind.name}")

    def _open(self, number: int) -> None:
        if number <= self._last:
            raise ProtocolViolation("the number of a stream is used again")
        self._last = number
        if len(self._streams) >= self._limits.most_streams:
            self._stray_allowed += self._limits.window
            self.tell(pack(Kind.RESET, number))
            return
        protocol = self._speaker()
        stream = self._streams[number] = TunnelStream(number, self, protocol, self._limits)
        protocol.connection_made(stream)

    def _about(self, kind: Kind, number: int, payload: bytes) -> None:
        stream = self._streams.get(number)
        if stream is None:
            self._about_former(number, payload)
        elif kind is Kind.DATA:
            stream.take(payload)
        elif kind is Kind.END:
            stream.ended()
        elif kind is Kind.CREDIT:
            stream.grant(unpack_credit(payload))
        else:
            self._forget(stream)

    def _about_former(self, number: int, payload: bytes) -> None:
        """What was on its way when the stream ended is let go; it cannot be more than the streams had credit for."""
        if not 0 < number <= self._last:
            raise ProtocolViolation("a stream that was never opened")
        self._stray_allowed -= len(payload)
        if self._stray_allowed < 0:
            raise ProtocolViolation("bytes for streams that have long ended")

    def tell(self, message: bytes) -> None:
        """Send a short message before any data."""
        if len(self._told) >= self._limits.most_waiting:
            raise ProtocolViolation("it asks and does not listen")
        self._told.append(message)
        self._something.set()

    def wants_turn(self, stream: TunnelStream) -> None:
        if stream.number in self._streams and (stream.can_send or stream.is_finished):
            self._turns.setdefault(stream.number, stream)
            self._something.set()

    async def next_message(self) -> bytes:
        """Waits until there is one. Streams take turns."""
        while True:
            if self._told:
                return self._told.popleft()
            while self._turns:
                stream = self._turns.pop(next(iter(self._turns)))
                if stream.can_send:
                    message = pack(Kind.DATA, stream.number, stream.next_piece())
                    self.wants_turn(stream)
                    return message
                if stream.is_finished:
                    self._forget(stream)
                    return pack(Kind.END, stream.number)
            self._something.clear()
            await self._something.wait()

    def reset(self, stream: TunnelStream) -> None:
        if stream.number in self._streams:
            self._forget(stream)
            self.tell(pack(Kind.RESET, stream.number))

    def sweep(self) -> None:
        """Reset the streams whose clients take nothing of what they asked for."""
        now = time.monotonic()
        for stream in [one for one in self._streams.values() if one.is_stalled(now)]:
            self.reset(stream)

    def close(self) -> None:
        """The connection is gone, and all streams with it."""
        for stream in list(self._streams.values()):
            self._forget(stream)

    def _forget(self, stream: TunnelStream) -> None:
        self._streams.pop(stream.number, None)
        self._turns.pop(stream.number, None)
        self._stray_allowed = min(self._stray_allowed + self._limits.window, MOST_CREDIT)
        stream.lost()
