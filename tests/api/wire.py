"""The two ends of an exchange in tests of the gateway: requests as bytes, and a service that says what it was asked."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

from tests.api.servers import Doors, head_of


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Says what it was asked: request line, headers, digest and size of the body."""
    digest, size, more = hashlib.sha256(), 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        digest.update(message["body"])
        size += len(message["body"])
        more = message["more_body"]
    answer = {
        "method": scope["method"],
        "path": scope["raw_path"].decode(),
        "query": scope["query_string"].decode(),
        "headers": [[k.decode(), v.decode("latin-1")] for k, v in scope["headers"]],
        "sha256": digest.hexdigest(),
        "size": size,
    }
    body = json.dumps(answer).encode()
    headers = [(b"content-type", b"application/json"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def raw(doors: Doors, request: bytes, *, until_close: bool = True) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", doors.port)
    writer.write(request)
    try:
        return await asyncio.wait_for(reader.read(-1) if until_close else head_of(reader), 60)
    finally:
        writer.transport.abort()


def request(doors: Doors, sandbox: str, line: str, *headers: str, port: int = 8000, close: bool = True) -> bytes:
    lines = [line, f"Host: 127.0.0.1:{doors.port}", f"E2b-Sandbox-Id: {sandbox}", f"E2b-Sandbox-Port: {port}"]
    return "\r\n".join([*lines, *headers, *(["Connection: close"] if close else []), "", ""]).encode()
