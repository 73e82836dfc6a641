"""Connections as the relays use them: bytes in, bytes out, an end; plain or under TLS, whichever side of it they are."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")
CHUNK = 65536
_CLOSING_S = 5


class Wire(Protocol):
    async def read(self) -> bytes:
        """Some bytes; none at the end."""

    async def write(self, data: bytes) -> None:
        """Returns when the other side has taken most of what was sent."""

    async def end(self) -> None:
        """Say that nothing more comes."""

    def abort(self) -> None: ...


class StreamWire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        return await self._reader.read(CHUNK)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def end(self) -> None:
        with contextlib.suppress(OSError):
            self._writer.write_eof()

    def abort(self) -> None:
        self._writer.transport.abort()


class TlsWire:
    """TLS over another wire. As the server it takes bytes that were read from that wire before."""

    def __init__(self, below: Wire, context: ssl.SSLContext, *, name: str | None = None, first: bytes = b"") -> None:
        """`name`: whom the certificate of the other side must be for; None: this is the server's side."""
        self._below = below
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._incoming.write(first)
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=name is None, server_hostname=name)

    async def shake_hands(self, within_s: float) -> None:
        """Raises `ssl.SSLError`, among them `ssl.SSLCertVerificationError`, `TimeoutError` and `OSError`."""
        async with asyncio.timeout(within_s):
            try:
                await self._do(self._tls.do_handshake)
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    await self._flush()  # the alert that says why
                raise

    async def read(self) -> bytes:
        try:
            return await self._do(lambda: self._tls.read(CHUNK))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    async def write(self, data: bytes) -> None:
        for start in range(0, len(data), CHUNK):
            self._tls.write(data[start : start + CHUNK])
            await self._flush()

    async def end(self) -> None:
        """TLS ends as a whole: what the other side still sends is not read."""
        with contextlib.suppress(ssl.SSLError, OSError, TimeoutError):
            async with asyncio.timeout(_CLOSING_S):
                with contextlib.suppress(ssl.SSLWantReadError):
                    self._tls.unwrap()
                await self._flush()
                await self._below.end()

    def abort(self) -> None:
        self._below.abort()

    async def _do(self, act: Callable[[], T]) -> T:
        while True:
            try:
                result = act()
            except ssl.SSLWantReadError:
                await self._flush()
                if part := await self._below.read():
                    self._incoming.write(part)
                else:
                    self._incoming.write_eof()
                continue
            await self._flush()
            return result

    async def _flush(self) -> None:
        if data := self._outgoing.read():
            await self._below.write(data)
