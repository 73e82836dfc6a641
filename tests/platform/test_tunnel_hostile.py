"""The tunnel against relays and clients that do not keep to the rules. The sandbox's side is hostile: it may end its own tunnel only."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import WSMsgType, web

from sandlot.platform.core.model import PortAddress
from sandlot.platform.tunnel.connection import Connection, RelayRefused
from sandlot.platform.tunnel.frames import VERSION, Kind, pack, pack_credit, unpack
from sandlot.platform.tunnel.limits import TunnelLimits
from sandlot.platform.tunnel.routes import Receive, Scope, Send, TunnelServer

LIMITS = TunnelLimits(most_streams=4, window=64 << 10, frame=32 << 10, body_bytes=1 << 20, body_s=1.0)
Script = Callable[[web.WebSocketResponse], Awaitable[None]]


class FalseRelay:
    """A WebSocket server that follows a script of the test."""

    def __init__(self) -> None:
        self.script: Script | None = None
        self.answer: Callable[[], web.StreamResponse] | None = None
        self.url = ""
        self.elsewhere = 0  # requests for anything but the tunnel

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path != "/":
            self.elsewhere += 1
            return web.Response(text="a secret of the host")
        if self.answer is not None:
            return self.answer()
        socket = web.WebSocketResponse(protocols=(VERSION,), max_msg_size=0)
        await socket.prepare(request)
        assert self.script is not None
        await self.script(socket)
        async for _ in socket:
            pass
        return socket


async def served(scope: Scope, receive: Receive, send: Send) -> None:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"400000")]})
    await send({"type": "http.response.body", "body": b"x" * 400000})


@pytest.fixture
async def relay() -> AsyncIterator[FalseRelay]:
    made = FalseRelay()
    app = web.Application()
    app.router.add_route("*", "/{any:.*}", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.fixture
async def server() -> AsyncIterator[TunnelServer]:
    made = TunnelServer({"git": served}, LIMITS)
    yield made
    await made.close()


def connection(relay: FalseRelay, server: TunnelServer) -> Connection:
    return Connection(PortAddress(url=relay.url), "token", server.speaker, LIMITS)


async def carried(relay: FalseRelay, server: TunnelServer, script: Script) -> tuple[str, Connection]:
    relay.script = script
    made = connection(relay, server)
    await made.open()
    try:
        return await asyncio.wait_for(made.run(), 60), made
    finally:
        await made.close()


VIOLATIONS = {
    "a message without a head": [b"\x01"],
    "of the unknown kind": [b"\x63" + struct.pack(">I", 1)],
    "never opened": [pack(Kind.DATA, 7, b"x")],
    "used again": [pack(Kind.OPEN, 1), pack(Kind.OPEN, 1)],
    "than the stream has credit": [pack(Kind.OPEN, 1), *[pack(Kind.DATA, 1, b"GET " + b"x" * 32000)] * 5],
    "more credit than": [pack(Kind.OPEN, 1), pack_credit(1, 0xFFFFFFFF)],
    "a credit that is no number": [pack(Kind.OPEN, 1), pack(Kind.CREDIT, 1, b"x")],
    "a relay says no BYE": [pack(Kind.BYE)],
}


@pytest.mark.parametrize("words", VIOLATIONS)
async def test_a_relay_that_breaks_the_protocol_loses_its_connection(
    relay: FalseRelay, server: TunnelServer, words: str
) -> None:
    async def say(socket: web.WebSocketResponse) -> None:
        for message in VIOLATIONS[words]:
            await socket.send_bytes(message)

    why, made = await carried(relay, server, say)
    assert len(made.streams) == 0
    # Bytes for a stream that our server has closed by then are found out as such.
    assert words in why or "long ended" in why, why


async def test_text_and_messages_beyond_the_limit_end_the_connection(relay: FalseRelay, server: TunnelServer) -> None:
    async def text(socket: web.WebSocketResponse) -> None:
        await socket.send_str("hello")

    async def large(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(b"x" * (1 << 20))

    for script in (text, large):
        _, made = await carried(relay, server, script)
        assert len(made.streams) == 0


async def test_one_connection_more_than_allowed_is_reset(relay: FalseRelay, server: TunnelServer) -> None:
    said: list[tuple[Kind, int]] = []

    async def open_five(socket: web.WebSocketResponse) -> None:
        for number in range(1, 6):
            await socket.send_bytes(pack(Kind.OPEN, number))
        message = await socket.receive()
        assert message.type is WSMsgType.BINARY
        kind, number, _ = unpack(message.data)
        said.append((kind, number))
        await socket.close()

    await carried(relay, server, open_five)
    assert said == [(Kind.RESET, 5)]


async def test_an_answer_goes_no_further_than_the_credit_it_has(relay: FalseRelay, server: TunnelServer) -> None:
    got = 0

    async def ask_and_grant_nothing(socket: web.WebSocketResponse) -> None:
        nonlocal got
        await socket.send_bytes(pack(Kind.OPEN, 1))
        await socket.send_bytes(pack(Kind.DATA, 1, b"GET /git/x HTTP/1.1\r\nHost: a\r\n\r\n"))
        while got < LIMITS.window:
            got += len(unpack((await socket.receive()).data)[2])
        await socket.send_bytes(pack(Kind.PING, 0, b"now"))
        kind, _, payload = unpack((await socket.receive()).data)
        assert (kind, payload) == (Kind.PONG, b"now")
        await socket.close()

    await carried(relay, server, ask_and_grant_nothing)
    assert got == LIMITS.window


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n", b"404"),
        (b"GET /git/%2e%2e/x HTTP/1.1\r\nHost: a\r\n\r\n", b"400"),
        (b"GET http://127.0.0.1/tasks HTTP/1.1\r\nHost: a\r\n\r\n", b"40"),
        (b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: a\r\n\r\n", b"40"),
        (b"POST /git/x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf", b"408"),
        (b"GET /git/x HTTP/1.1\r\nHost: a\r\n" + b"A: " + b"b" * 70000, b"431"),
        (b"\x00\xff\r\n\r\n", b"400"),
    ],
)
async def test_a_client_inside_that_breaks_the_rules_is_refused(
    relay: FalseRelay, server: TunnelServer, request_head: bytes, status: bytes
) -> None:
    got = b""

    async def ask(socket: web.WebSocketResponse) -> None:
        nonlocal got
        await socket.send_bytes(pack(Kind.OPEN, 1))
        for start in range(0, len(request_head), 30000):
            await socket.send_bytes(pack(Kind.DATA, 1, request_head[start : start + 30000]))
        while b"\r\n" not in got:
            message = await socket.receive()
            if message.type is not WSMsgType.BINARY:
                break
            kind, _, payload = unpack(message.data)
            got += payload if kind is Kind.DATA else b""
        await socket.close()

    await carried(relay, server, ask)
    assert got.startswith(b"HTTP/1.1 " + status), got[:200]


async def test_what_is_no_relay_is_refused_and_its_redirects_are_not_followed(
    relay: FalseRelay, server: TunnelServer
) -> None:
    answers = [
        lambda: web.Response(status=302, headers={"Location": f"{relay.url}/secret"}),
        lambda: web.Response(status=307, headers={"Location": f"{relay.url}/secret"}),
        lambda: web.Response(text="hello"),
        lambda: web.Response(status=502),
    ]
    for answer in answers:
        relay.answer = answer
        with pytest.raises(RelayRefused):
            await connection(relay, server).open()
    assert relay.elsewhere == 0
