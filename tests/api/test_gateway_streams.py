"""Bodies and streams through the gateway: how they flow, are held back, and end, on either side."""

from __future__ import annotations

import asyncio
import hashlib
import resource
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from tests.api.servers import Doors, head_of, raw_service, service, until
from tests.api.wire import echo, raw, request

from sandlot.engine.core.model import ENVD_PORT

CHUNK = bytes(range(256)) * 256  # 64 KiB


async def test_large_bodies_stream_both_ways_in_bounded_memory(doors: Doors, sandbox: str) -> None:
    count = 800  # 50 MiB

    async def back(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        more = True
        while more:
            message = await receive()
            more = message.get("more_body", False)
            await send({"type": "http.response.body", "body": message["body"], "more_body": more})

    async def body() -> AsyncIterator[bytes]:
        for _ in range(count):
            yield CHUNK

    async with service(back) as port, aiohttp.ClientSession() as client:
        doors.ports[8000] = port
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        async with client.post(doors.url, data=body(), headers=doors.route(sandbox, 8000)) as response:
            digest = hashlib.sha256()
            async for chunk in response.content.iter_any():
                digest.update(chunk)
        grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert digest.hexdigest() == hashlib.sha256(CHUNK * count).hexdigest()
    assert grown_mib < 30  # client, edge and service together


async def test_a_slow_reader_holds_the_sandbox_back(doors: Doors, sandbox: str) -> None:
    written = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while True:
            writer.write(CHUNK)
            await writer.drain()
            written += len(CHUNK)

    async with raw_service(flood) as port:
        doors.ports[8000] = port
        reader, writer = await asyncio.open_connection("127.0.0.1", doors.port, limit=1024)
        writer.write(request(doors, sandbox, "GET / HTTP/1.1"))
        await reader.readline()
        last = -1
        while written != last:  # until nothing moves any more
            last = written
            await asyncio.sleep(0.3)
        assert written < 40 << 20
        writer.transport.abort()
        await until(lambda: doors.node.real_proxy.open_count(sandbox) == 0)


async def test_each_chunk_arrives_when_it_is_sent(doors: Doors, sandbox: str) -> None:
    step = asyncio.Event()

    async def events(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for text in (b"data: 1\n\n", b"data: 2\n\n"):
            writer.write(b"%x\r\n%s\r\n" % (len(text), text))
            await step.wait()
            step.clear()
        writer.write(b"0\r\n\r\n")

    async with raw_service(events) as port, doors.client(key=None) as client:
        doors.ports[8000] = port
        async with client.stream("GET", "/", headers=doors.route(sandbox, 8000)) as response:
            chunks = response.aiter_raw()
            assert response.headers["content-type"] == "text/event-stream"
            for expected in (b"data: 1\n\n", b"data: 2\n\n"):
                assert await asyncio.wait_for(anext(chunks), 60) == expected
                step.set()


async def test_a_request_body_arrives_while_the_answer_is_on_its_way(doors: Doors, sandbox: str) -> None:
    async def duplex(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        more = True
        while more:
            message = await receive()
            more = message.get("more_body", False)
            await send({"type": "http.response.body", "body": message["body"].upper(), "more_body": more})

    async with service(duplex) as port:
        doors.ports[8000] = port
        reader, writer = await asyncio.open_connection("127.0.0.1", doors.port)
        writer.write(request(doors, sandbox, "POST / HTTP/1.1", "Transfer-Encoding: chunked"))
        for word in (b"one", b"two"):
            writer.write(b"3\r\n%s\r\n" % word)
            assert await asyncio.wait_for(reader.readuntil(word.upper()), 60)
        writer.write(b"0\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), 60)).endswith(b"0\r\n\r\n")
        writer.close()


@pytest.mark.parametrize("framing", ["chunked", "length"])
async def test_a_machine_that_dies_in_the_middle_cuts_the_client(doors: Doors, sandbox: str, framing: str) -> None:
    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        if framing == "chunked":
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello")
        await writer.drain()
        writer.transport.abort()

    async with raw_service(die) as port:
        doors.ports[8000] = port
        answer = await raw(doors, request(doors, sandbox, "GET / HTTP/1.1"))
    assert b"hello" in answer and not answer.endswith(b"0\r\n\r\n")


async def test_killing_a_sandbox_cuts_its_streams_and_then_it_is_not_found(doors: Doors, sandbox: str) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
        await reader.read()

    async with raw_service(hang) as port, doors.client() as client:
        doors.ports[ENVD_PORT] = port
        reader, writer = await asyncio.open_connection("127.0.0.1", doors.port)
        writer.write(request(doors, sandbox, "GET /stream HTTP/1.1", port=ENVD_PORT))
        await asyncio.wait_for(reader.readuntil(b"hi\r\n"), 60)
        assert (await client.delete(f"/sandboxes/{sandbox}")).status_code == 204
        with pytest.raises(ConnectionResetError):  # no final chunk, and no clean end that could be taken for one
            await asyncio.wait_for(reader.read(), 60)
        gone = await client.get("/health", headers=doors.route(sandbox))
        assert gone.status_code == 502
        assert gone.json() == {"sandboxId": sandbox, "message": "The sandbox was not found", "code": 502}
        writer.close()


async def test_a_client_that_leaves_is_noticed_at_once(doors: Doors, sandbox: str) -> None:
    left = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        if await reader.read(1) == b"":
            left.set()

    async with raw_service(silent) as port:
        doors.ports[8000] = port
        _reader, writer = await asyncio.open_connection("127.0.0.1", doors.port)
        writer.write(request(doors, sandbox, "GET / HTTP/1.1"))
        await until(lambda: doors.node.real_proxy.open_count(sandbox) == 1)
        writer.close()
        await asyncio.wait_for(left.wait(), 60)
        await until(lambda: doors.node.real_proxy.open_count(sandbox) == 0)


async def test_half_an_upload_is_never_taken_for_a_whole_one(doors: Doors, sandbox: str) -> None:
    seen = bytearray()
    done = asyncio.Event()

    async def receive_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        try:
            while piece := await reader.read(1000):
                seen.extend(piece)
        finally:
            done.set()

    async with raw_service(receive_all) as port:
        doors.ports[8000] = port
        _reader, writer = await asyncio.open_connection("127.0.0.1", doors.port)
        writer.write(request(doors, sandbox, "POST / HTTP/1.1", "Transfer-Encoding: chunked") + b"4\r\nhalf\r\n")
        await until(lambda: b"half" in seen)
        writer.transport.abort()
        await asyncio.wait_for(done.wait(), 60)
    assert bytes(seen) == b"4\r\nhalf\r\n"


async def test_draining_ends_as_soon_as_nothing_is_open_and_cuts_nothing_then(doors: Doors, sandbox: str) -> None:
    go = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        await go.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")

    async with raw_service(wait) as port:
        doors.ports[8000] = port
        answers = [asyncio.create_task(raw(doors, request(doors, sandbox, "GET / HTTP/1.1"))) for _ in range(2)]
        await until(lambda: doors.node.real_proxy.open_count(sandbox) == 2)
        draining = asyncio.create_task(doors.node.real_proxy.drain(sandbox, grace_s=3600))
        go.set()
        assert await asyncio.wait_for(draining, 60) == 0
        assert [(await answer).endswith(b"\r\n\r\ndone") for answer in answers] == [True, True]


async def test_draining_waits_for_what_is_open_and_cuts_the_rest(doors: Doors, sandbox: str) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
        await reader.read()

    async with raw_service(hang) as port:
        doors.ports[8000] = port
        stream = asyncio.create_task(raw(doors, request(doors, sandbox, "GET / HTTP/1.1")))
        await until(lambda: doors.node.real_proxy.open_count(sandbox) == 1)
        await asyncio.sleep(0.05)
        assert await doors.node.real_proxy.drain(sandbox, grace_s=0.1) == 1
        with pytest.raises(ConnectionResetError):
            await stream
        assert doors.node.real_proxy.open_count(sandbox) == 0


async def test_a_half_closed_connection_gets_a_quick_answer_and_no_endless_one(doors: Doors, sandbox: str) -> None:
    left = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
        await reader.read()
        left.set()

    async def half(request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", doors.port)
        writer.write(request)
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return answer

    async with service(echo) as port, raw_service(hang) as endless:
        doors.ports[8000], doors.ports[8001] = port, endless
        assert b'"status":"ok"' in await half(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b'"/quick"' in await half(request(doors, sandbox, "GET /quick HTTP/1.1", close=False))
        cut = await half(request(doors, sandbox, "GET / HTTP/1.1", port=8001, close=False))
        assert not cut.endswith(b"0\r\n\r\n")
        await asyncio.wait_for(left.wait(), 60)
        unfinished = request(doors, sandbox, "POST / HTTP/1.1", "Content-Length: 100", close=False) + b"half"
        assert await half(unfinished) == b""
        await until(lambda: doors.node.real_proxy.open_count(sandbox) == 0)
