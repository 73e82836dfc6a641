"""Bodies that cost more to read than to send: nobody's key is no key, and large JSON never holds up the server."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from tests.api.servers import open_doors
from tests.platform.fakes import ScriptedProvider
from tests.platform.world import Served, scripted

from sandlot.platform.core.model import Scope
from sandlot.server.bodies import SMALL_BYTES, Bodies
from sandlot.server.http import SILENT_PER_ADDRESS

MANY = b"[" + b"1," * (1 << 20) + b"1]"
DEEP = b"[" * 300_000 + b"]" * 300_000


def sending(body: bytes) -> Callable[[], Awaitable[dict[str, Any]]]:
    parts = [body[start : start + 65536] for start in range(0, len(body), 65536)]

    async def receive() -> dict[str, Any]:
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    return receive


def scope(kind: str = "application/json") -> dict[str, Any]:
    return {"type": "http", "headers": [(b"content-type", kind.encode())]}


async def test_a_request_without_a_key_is_answered_before_its_body_is_there(tmp_path: Path) -> None:
    async with open_doors(tmp_path, max_body_mb=16) as doors:
        for key in ("", "X-API-KEY: e2b_0000\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", doors.port)
            head = f"POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\n{key}Content-Length: 900000\r\n\r\n"
            writer.write(head.encode() + b"[")
            answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), 60)
            assert b" 401 " in answer
            writer.close()


async def test_each_route_has_a_limit_of_its_own(tmp_path: Path) -> None:
    async with open_doors(tmp_path, max_body_mb=16) as doors, doors.client() as client:
        large = json.dumps({"x": "y" * (2 << 20)})
        assert (await client.post("/v2/sandboxes", content=large)).status_code == 413
        assert (await client.post("/v3/templates", content=large)).status_code != 413


@pytest.mark.parametrize("body", [MANY, DEEP, b'{"a": ' + b" " * SMALL_BYTES], ids=["many", "deep", "broken"])
async def test_large_json_that_is_costly_is_refused_by_another_process(body: bytes) -> None:
    receive = Bodies().bounded(scope(), sending(body), 16 << 20)
    with pytest.raises(HTTPException) as refused:
        await receive()
    assert refused.value.status_code == 400


async def test_large_json_of_few_values_arrives_whole_and_so_does_what_is_no_json() -> None:
    body = json.dumps({"content": "line\n" * 200_000}).encode()
    assert (await Bodies().bounded(scope(), sending(body), 16 << 20)())["body"] == body
    got, receive = b"", Bodies().bounded(scope("text/plain"), sending(MANY), 16 << 20)
    while (message := await receive())["more_body"]:
        got += message["body"]
    assert got + message["body"] == MANY


async def test_whoever_may_only_look_sends_little(tmp_path: Path) -> None:
    body = {"sandbox_id": "sbx_x", "path": "/tmp/x", "content": "x" * (1 << 20)}
    async with Served(tmp_path, scripted(), {"scripted": ScriptedProvider()}) as served:
        async with served.http(await served.key("ada", Scope.READ)) as client:
            assert (await client.post("/sandboxes/write-file", json=body)).status_code == 413
        async with served.http(await served.key("ada")) as client:
            assert (await client.post("/sandboxes/write-file", json=body)).status_code == 404


async def test_metrics_and_descriptions_can_be_closed_to_whoever_has_no_key(tmp_path: Path) -> None:
    async with open_doors(tmp_path, is_closed=True) as doors:
        for key, status in ((None, 401), ("", 200)):
            async with doors.client(key) as client:
                for path in ("/metrics", "/docs", "/openapi.json"):
                    assert (await client.get(path)).status_code == status, path
                assert (await client.get("/health")).status_code == 200


async def test_a_large_body_that_nobody_reads_ends_its_connection(tmp_path: Path) -> None:
    async with open_doors(tmp_path, max_body_mb=16) as doors:
        _, writer = await asyncio.open_connection("127.0.0.1", doors.port)
        size = 1 << 30
        writer.write(f"POST /v3/templates HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode())
        sent = 0
        with pytest.raises(ConnectionError):
            async with asyncio.timeout(100):
                while sent < size:
                    writer.write(bytes(1 << 20))
                    await writer.drain()
                    sent += 1 << 20
        assert sent < size // 4
        writer.transport.abort()


async def test_connections_that_say_nothing_make_room_for_each_other_and_keep_nobody_out(tmp_path: Path) -> None:
    async with open_doors(tmp_path) as doors, doors.client() as client:
        silent = [await asyncio.open_connection("127.0.0.1", doors.port) for _ in range(SILENT_PER_ADDRESS + 5)]
        assert (await client.get("/v2/sandboxes")).status_code == 200
        async with asyncio.timeout(60):
            for reader, _ in silent[:4]:  # the oldest
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
        reader, writer = silent[-1]
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 200 " in await asyncio.wait_for(reader.readline(), 60)
        for _, each in silent:
            each.transport.abort()
