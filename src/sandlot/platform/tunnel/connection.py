"""One WebSocket connection to a relay: opened, carried until it ends, given up when the relay does not keep to the protocol."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

import aiohttp

from sandlot.platform.core.errors import Unavailable
from sandlot.platform.core.model import PortAddress
from sandlot.platform.tunnel.frames import HEAD_SIZE, VERSION, Kind, ProtocolViolation, pack
from sandlot.platform.tunnel.limits import TunnelLimits
from sandlot.platform.tunnel.streams import Speaker, Streams

TOKEN_HEADER = "X-Sandlot-Tunnel"
CLOSE_S = 2.0


class RelayRefused(Unavailable):
    """Nothing answers at the relay's port, or something that is not the relay we want."""


class Connection:
    """`open` it, `run` until it ends, `close` it."""

    def __init__(self, address: PortAddress, token: str, speaker: Speaker, limits: TunnelLimits) -> None:
        self._address, self._token, self._limits = address, token, limits
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self.streams = Streams(speaker, limits)

    async def open(self) -> None:
        """Raises `RelayRefused`."""
        self._session = aiohttp.ClientSession(trust_env=False, auto_decompress=False, trace_configs=[_no_redirects()])
        headers: Mapping[str, str] = {**self._address.headers, TOKEN_HEADER: self._token}
        try:
            async with asyncio.timeout(self._limits.open_s):
                self._socket = await self._session.ws_connect(
                    self._address.url,
                    headers=headers,
                    protocols=(VERSION,),
                    max_msg_size=self._limits.frame + HEAD_SIZE + 1,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),
                    compress=0,
                )
            if self._socket.protocol != VERSION:
                raise RelayRefused("what answers at the relay's port is not our relay")
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            await self.close()
            raise RelayRefused(f"the relay in the sandbox does not answer ({_words(error)})") from error
        except BaseException:
            await self.close()
            raise

    async def run(self) -> str:
        """Carry, until the connection ends; returns why."""
        work = [asyncio.create_task(step()) for step in (self._receive, self._send, self._ping)]
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            error = next(iter(done)).exception()
            if error is not None and not isinstance(error, ProtocolViolation | aiohttp.ClientError | OSError):
                raise error
            return f"it was ended: {error}" if error else "the relay is gone"
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            self.streams.close()

    async def leave(self) -> None:
        """Tell the relay that it may end."""
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                if self._socket is not None:
                    await self._socket.send_bytes(pack(Kind.BYE))

    async def _receive(self) -> None:
        assert self._socket is not None
        while True:
            async with asyncio.timeout(self._limits.silence_s):
                message = await self._socket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                return
            self.streams.take(message.data)

    async def _send(self) -> None:
        assert self._socket is not None
        while True:
            message = await self.streams.next_message()
            async with asyncio.timeout(self._limits.silence_s):
                await self._socket.send_bytes(message)

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(self._limits.ping_s)
            self.streams.tell(pack(Kind.PING))
            self.streams.sweep()

    async def close(self) -> None:
        if self._socket is not None and not self._socket.closed:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                await self._socket.close()
        if self._session is not None:
            await self._session.close()


def _no_redirects() -> aiohttp.TraceConfig:
    """What answers is the guest's: it must not send us to other addresses, with our headers, on the host's own network."""

    async def refuse(*_: object) -> None:
        raise RelayRefused("what answers at the relay's port is not our relay: it redirects")

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(refuse)
    return trace


def _words(error: BaseException) -> str:
    if isinstance(error, aiohttp.WSServerHandshakeError):
        return f"HTTP status {error.status}"
    return type(error).__name__
