"""WebSockets through the gateway."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from typing import Any

import aiohttp
import pytest
from tests.api.servers import Doors, head_of, raw_service, service, until
from yarl import URL

from sandlot.engine.core.model import ENVD_PORT


class Echo:
    """Sends back what it gets; notes how its clients said goodbye."""

    def __init__(self) -> None:
        self.closes: list[dict[str, Any]] = []
        self.scopes: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        assert (await receive())["type"] == "websocket.connect"
        chosen = "binary" if "binary" in scope["subprotocols"] else None
        await send({"type": "websocket.accept", "subprotocol": chosen, "headers": [(b"x-service", b"echo")]})
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                self.closes.append(message)
                return
            if message.get("text") == "close 4321":
                await send({"type": "websocket.close", "code": 4321, "reason": "as you wish"})
                return
            await send({"type": "websocket.send", **{k: message[k] for k in ("text", "bytes") if k in message}})


async def test_messages_pass_both_ways_with_the_chosen_subprotocol(doors: Doors, sandbox: str) -> None:
    echo = Echo()
    async with service(echo) as port, aiohttp.ClientSession() as client:
        doors.ports[6080] = port
        asked = {**doors.route(sandbox, 6080), "Origin": "http://o.test", "Cookie": "a=1"}
        connecting = client.ws_connect(
            URL(f"{doors.url}/ws?x=%2F", encoded=True), headers=asked, protocols=("text", "binary"), max_msg_size=0
        )
        async with connecting as ws:
            assert ws.protocol == "binary"
            await ws.send_str("grüße")
            assert await ws.receive_str() == "grüße"
            big = bytes(range(256)) * 16384  # 4 MiB
            await ws.send_bytes(big)
            assert await ws.receive_bytes() == big
            await ws.ping(b"hello")
            await ws.send_str("")
            assert await ws.receive_str() == ""
            await ws.close(code=4001, message=b"done")
        await until(lambda: bool(echo.closes))
    assert (echo.closes[0]["code"], echo.closes[0]["reason"]) == (4001, "done")
    headers = dict(echo.scopes[0]["headers"])
    assert echo.scopes[0]["raw_path"] == b"/ws" and echo.scopes[0]["query_string"] == b"x=%2F"
    assert {k.lower(): v for k, v in headers.items()}[b"origin"] == b"http://o.test"


async def test_the_service_says_goodbye_with_its_own_code(doors: Doors, sandbox: str) -> None:
    async with service(Echo()) as port, aiohttp.ClientSession() as client:
        doors.ports[80] = port
        async with client.ws_connect(doors.url, headers=doors.route(sandbox, 80)) as ws:
            await ws.send_str("close 4321")
            message = await ws.receive(5)
            assert (message.type, message.data, message.extra) == (aiohttp.WSMsgType.CLOSE, 4321, "as you wish")
        await until(lambda: doors.node.real_proxy.open_count(sandbox) == 0)


async def test_a_services_goodbye_is_answered(doors: Doors, sandbox: str) -> None:
    """As the protocol wants it: a close frame for a close frame, the client's own, before the connection ends."""
    answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def leaving(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await head_of(reader)
        keys = [
            line.split(b":")[1].strip() for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key")
        ]
        assert len(keys) == 1
        accept = base64.b64encode(hashlib.sha1(keys[0] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        lines = [b"HTTP/1.1 101 Switching Protocols", b"Upgrade: websocket", b"Connection: Upgrade"]
        writer.write(b"\r\n".join([*lines, b"Sec-WebSocket-Accept: " + accept, b"", b""]))
        writer.write(b"\x88\x02" + (4321).to_bytes(2))
        answered.set_result(await reader.read())

    async with raw_service(leaving) as port, aiohttp.ClientSession() as client:
        doors.ports[80] = port
        async with client.ws_connect(doors.url, headers=doors.route(sandbox, 80)) as ws:
            assert (await ws.receive(60)).data == 4321
            frame = await asyncio.wait_for(answered, 60)
    assert frame[:2] == b"\x88\x82", "no masked close frame of two bytes"
    assert bytes(byte ^ mask for byte, mask in zip(frame[6:8], frame[2:6], strict=False)) == (1000).to_bytes(2)


async def test_a_lost_client_is_lost_to_the_service_too(doors: Doors, sandbox: str) -> None:
    echo = Echo()
    async with service(echo) as port, aiohttp.ClientSession() as client:
        doors.ports[80] = port
        ws = await client.ws_connect(doors.url, headers=doors.route(sandbox, 80))
        await ws.send_str("x")
        assert await ws.receive_str() == "x"
        ws._response.close()
        await until(lambda: bool(echo.closes))
        assert "reason" not in echo.closes[0]
        await until(lambda: doors.node.real_proxy.open_count(sandbox) == 0)


async def test_a_lost_service_closes_the_client_with_an_error(doors: Doors, sandbox: str) -> None:
    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await head_of(reader)
        key = next(
            line.split(b": ")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key")
        )
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
        writer.write(b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
        await reader.read(1)
        writer.transport.abort()

    async with raw_service(die) as port, aiohttp.ClientSession() as client:
        doors.ports[80] = port
        async with client.ws_connect(doors.url, headers=doors.route(sandbox, 80)) as ws:
            await ws.send_str("x")
            message = await ws.receive(5)
            assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, 1011)


async def test_killing_the_sandbox_ends_its_websockets(doors: Doors, sandbox: str) -> None:
    async with service(Echo()) as port, aiohttp.ClientSession() as client, doors.client() as api:
        doors.ports[80] = port
        async with client.ws_connect(doors.url, headers=doors.route(sandbox, 80)) as ws:
            await ws.send_str("x")
            await ws.receive_str()
            assert (await api.delete(f"/sandboxes/{sandbox}")).status_code == 204
            assert (await ws.receive(5)).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)


@pytest.mark.parametrize(("port", "status"), [(4444, 502), (ENVD_PORT, 404)])
async def test_a_handshake_that_cannot_pass_gets_an_answer(doors: Doors, sandbox: str, port: int, status: int) -> None:
    async with aiohttp.ClientSession() as client:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await client.ws_connect(f"{doors.url}/init", headers=doors.route(sandbox, port))
        assert caught.value.status == status


async def test_a_service_that_refuses_the_websocket_is_believed(doors: Doors, sandbox: str) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    async with raw_service(refuse) as port, aiohttp.ClientSession() as client:
        doors.ports[80] = port
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await client.ws_connect(doors.url, headers=doors.route(sandbox, 80))
        assert caught.value.status == 403


async def test_a_websocket_to_the_api_is_refused(doors: Doors) -> None:
    async with aiohttp.ClientSession() as client:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await client.ws_connect(f"{doors.url}/sandboxes")
        assert caught.value.status in (403, 404)


async def test_broken_frames_end_the_websocket_and_nothing_else(doors: Doors, sandbox: str) -> None:
    async with service(Echo()) as port, aiohttp.ClientSession() as client:
        doors.ports[80] = port
        for frame in (
            b"\xff\xff\xff\xff\xff\xff",
            b"\x81\x05hello",
            b"\x81\xff" + b"\xff" * 12,
            b"\x81\x81\0\0\0\0\xff",
        ):
            ws = await client.ws_connect(doors.url, headers=doors.route(sandbox, 80))
            connection = ws._response.connection
            assert connection is not None and connection.transport is not None
            connection.transport.write(frame)
            message = await ws.receive(5)
            assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
            await ws.close()
        async with client.get(f"{doors.url}/health") as response:
            assert response.status == 200
        await until(lambda: doors.node.real_proxy.open_count(sandbox) == 0)


async def test_a_service_on_loopback_takes_websockets_too(doors: Doors, sandbox: str) -> None:
    async with service(Echo()) as port, aiohttp.ClientSession() as client:
        doors.node.relays[3000], doors.ports[41000] = 41000, port
        async with client.ws_connect(doors.url, headers=doors.route(sandbox, 3000)) as ws:
            await ws.send_str("x")
            assert await ws.receive_str() == "x"
