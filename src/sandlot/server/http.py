"""The HTTP server that the API and the gateway run in: uvicorn with bounded request heads, JSON for what is no HTTP, and honest disconnects."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
import struct
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from sandlot.server.listener import Listener
from sandlot.server.websockets import WebSockets

HEAD_LIMIT = 64 * 1024
HEAD_S = 60.0
KEEP_ALIVE_S = 330  # SDKs keep idle connections for 300 s; the one who closes first must be the client
WEBSOCKET_LIMIT = 1 << 20  # of the server's own; those into sandboxes are handed over whole
SHUTDOWN_S = 5
RESET = "sandlot.reset"  # an extension of ASGI: a function that resets the client's connection
HALF_CLOSED_S = 0.1
THROWN_AWAY_LIMIT = 64 << 20  # of a body that nobody reads because the answer is known; then the connection ends
THROW_AWAY_EVERY_S = 0.01
HANG_UP_S = 1.0
SILENT_PER_ADDRESS = 256  # connections without a request yet
_OFFER = re.compile(rb"\r\nupgrade:([ \t]*h2c[ \t]*\r\n)", re.IGNORECASE)


class Http(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with limits on what comes before a body: its parser would take a head of any size, forever."""

    _head_bytes = 0
    _in_head = True
    _timer: asyncio.TimerHandle | None = None
    _active: RequestResponseCycle | None = None
    _thrown_away = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        _SILENT.add(self)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_done()
        _SILENT.discard(self)
        super().connection_lost(exc)
        # uvicorn tells the newest request; with pipelining that is not the one whose answer is being sent.
        if self._active is not None and not self._active.response_complete:
            self._active.disconnected = True
            self._active.message_event.set()

    def _reset(self) -> None:
        """End the connection as a crash would: clients must not take a cut stream for one that is complete."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """The client will send no more. It may still want its answer, or be gone: nothing tells which.

        A whole request is answered if that does not take long; with TLS the connection ends here in any case.
        """
        cycle = self._active
        if cycle is None or cycle.response_complete or cycle.more_body or self.pipeline or self.scheme == "https":
            return None
        cycle.keep_alive = False
        self.loop.call_later(HALF_CLOSED_S, self._give_up, cycle)
        return True

    def _give_up(self, cycle: RequestResponseCycle) -> None:
        """A stream is not kept open for a client that is probably gone; the API's own answers all come to an end."""
        if cycle.scope.get("forwarded") and not cycle.response_complete and not self.transport.is_closing():
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self._in_head and b"h2c" in data:
            data = _without_offer(data)
        super().data_received(data)
        if self._in_head and self.parser is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_LIMIT:
                self._refuse(431, f"the request's head is larger than the {HEAD_LIMIT // 1024} KiB this server reads")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {RESET: self._reset}  # type: ignore[dict-item]
        self._await_head()

    def on_headers_complete(self) -> None:
        self._head_done()
        _SILENT.discard(self)
        super().on_headers_complete()
        if self.cycle is not None:
            self.cycle.transport = _Together(self.loop, self.transport)  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        if self.cycle is not None and self.cycle.response_complete:
            self._throw_away(len(body))

    def _throw_away(self, size: int) -> None:
        """What comes after the answer is read slowly and not for long: reading it must cost the client more than us."""
        self._thrown_away += size
        if self.transport.is_closing():
            return
        self.flow.pause_reading()
        if self._thrown_away > THROWN_AWAY_LIMIT:
            self.loop.call_later(HANG_UP_S, self.transport.abort)
        else:
            self.loop.call_later(THROW_AWAY_EVERY_S, self.flow.resume_reading)

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is not a valid HTTP/1.1 request")

    def _unsupported_upgrade_warning(self) -> None:
        """The parser reads nothing more on this connection, not even this request's body: answer, then hang up."""
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._active = cycle
        super()._start_asgi_task(cycle, app)

    def _await_head(self) -> None:
        self._in_head, self._head_bytes, self._thrown_away = True, 0, 0
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_S, self._late)

    def _head_done(self) -> None:
        self._in_head = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        answering = self._active is not None and not self._active.response_complete
        if not answering and not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, status: int, message: str) -> None:
        """Answer and hang up; only if no answer is on its way, which this one would end up in the middle of."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            body = json.dumps({"code": status, "message": message}).encode()
            head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()


class _Silent:
    """Connections that have not asked for anything yet, by address. Too many of one address end its oldest.

    The oldest, not the newest: who shares the address and asks at once is not kept out by who says nothing.
    """

    def __init__(self) -> None:
        self._of: defaultdict[str, dict[Http, None]] = defaultdict(dict)

    def add(self, connection: Http) -> None:
        address = connection.client[0] if connection.client else ""
        held = self._of[address]
        held[connection] = None
        if len(held) > SILENT_PER_ADDRESS:
            oldest = next(iter(held))
            del held[oldest]
            oldest.transport.abort()

    def discard(self, connection: Http) -> None:
        address = connection.client[0] if connection.client else ""
        held = self._of.get(address)
        if held is not None:
            held.pop(connection, None)
            if not held:
                del self._of[address]


_SILENT = _Silent()


class _Together:
    """Holds the head of an answer back for the body that follows at once: one packet, and one wakeup of the client, not two."""

    __slots__ = ("_held", "_loop", "_transport")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop, self._transport, self._held = loop, transport, b""

    def write(self, data: bytes) -> None:
        if self._held:
            data, self._held = self._held + data, b""
        elif data.startswith(b"HTTP/1.1 "):
            self._held = data
            self._loop.call_soon(self._release)
            return
        self._transport.write(data)

    def close(self) -> None:
        self._release()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _release(self) -> None:
        if self._held and not self._transport.is_closing():
            self._transport.write(self._held)
        self._held = b""


def _without_offer(data: bytes) -> bytes:
    """Rename the offer of HTTP/2 that some clients send with every request: the parser would stop reading at it."""
    head, end, rest = data.partition(b"\r\n\r\n")
    return _OFFER.sub(rb"\r\nx-offer:\1", head + end) + rest


class Server(uvicorn.Server):
    """Cuts what would hold up a shutdown (open streams into sandboxes) before waiting for the rest."""

    def __init__(
        self,
        config: uvicorn.Config,
        before_shutdown: Callable[[], Awaitable[None]] | None = None,
        on_listening: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(config)
        self._before_shutdown, self._on_listening = before_shutdown, on_listening

    async def startup(self, sockets: Any = None) -> None:
        if isinstance(self.config.ssl, ssl.SSLContext):
            await super().startup([])
            given = sockets if sockets is not None else [_bound(self.config.host, self.config.port)]
            self.servers = [Listener(sock, self._protocol, self.config.ssl) for sock in given]  # type: ignore[misc]
        else:
            await super().startup(sockets)
        if self._on_listening is not None and self.started:
            self._on_listening()

    async def shutdown(self, sockets: Any = None) -> None:
        for server in self.servers:
            server.close()
        if self._before_shutdown is not None:
            await self._before_shutdown()
        await super().shutdown(sockets)

    def _protocol(self) -> asyncio.Protocol:
        return Http(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    @property
    def port(self) -> int:
        """The port that is listened on; of interest when 0 was asked for."""
        return int(self.servers[0].sockets[0].getsockname()[1])


def build_server(
    app: Any,
    *,
    host: str,
    port: int,
    certificate: tuple[Path, Path] | None = None,
    before_shutdown: Callable[[], Awaitable[None]] | None = None,
) -> Server:
    """A server that is ready to `serve()`. `certificate`: files of the chain and the key, for TLS beside plain HTTP."""
    return Server(build_config(app, host=host, port=port, certificate=certificate), before_shutdown)


def _bound(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host, port))
    return sock


def build_config(
    app: Any, *, host: str = "127.0.0.1", port: int = 0, certificate: tuple[Path, Path] | None = None
) -> uvicorn.Config:
    """How the server is set up; host and port do not count if `serve` is given sockets."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=Http,
        ws=WebSockets,
        loop="uvloop",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_S,
        ws_max_size=WEBSOCKET_LIMIT,
        ws_ping_interval=30.0,
        ws_ping_timeout=120.0,
        ws_per_message_deflate=False,
        ssl_certfile=certificate[0] if certificate else None,
        ssl_keyfile=certificate[1] if certificate else None,
    )
    config.load()
    if isinstance(config.ssl, ssl.SSLContext):
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
        config.ssl.set_alpn_protocols(["http/1.1"])
    return config
