"""Into real sandboxes from the console: files, ports, and a terminal that is taken up again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.console.browsers import logged_in
from tests.e2e.server import Server
from tests.platform.world import until
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from sandlot.platform.console.ports import parse_listening


@pytest.fixture
async def admin(engine: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with logged_in(f"http://127.0.0.1:{engine.port}", engine.key) as made:
        yield made


@pytest.fixture
async def base(admin: httpx.AsyncClient, engine: Server) -> AsyncIterator[str]:
    """The path of a fresh sandbox in the console's API."""
    body = {"templateID": "base", "timeout": 600}
    made = await admin.post("/v2/sandboxes", json=body, headers={"X-API-KEY": engine.key})
    path = f"/console/api/sandboxes/{made.json()['sandboxID']}"
    yield path
    await admin.post(f"{path}/kill")


async def test_files_go_in_are_seen_come_out_and_go(admin: httpx.AsyncClient, base: str) -> None:
    assert (await admin.post(f"{base}/mkdir", json={"path": "/home/user/new/deep"})).status_code == 204
    file = "/home/user/new/page.html"
    content = b"<script>alert(1)</script>"
    written = await admin.put(f"{base}/file", params={"path": file}, content=content)
    assert written.json() == {"path": file, "size": len(content)}
    found = (await admin.get(f"{base}/files", params={"path": "/home/user/new"})).json()["entries"]
    assert {(entry["name"], entry["type"]) for entry in found} == {("deep", "dir"), ("page.html", "file")}
    read = await admin.get(f"{base}/file", params={"path": file})
    assert read.content == content and read.headers["content-type"] == "application/octet-stream"
    assert (
        read.headers["content-disposition"].startswith("attachment")
        and "sandbox" in read.headers["content-security-policy"]
    )
    assert (await admin.get(f"{base}/file", params={"path": file, "limit": 7})).content == content[:7]
    assert (await admin.delete(f"{base}/file", params={"path": file})).status_code == 204
    assert (await admin.get(f"{base}/file", params={"path": file})).status_code == 404
    assert (await admin.get(f"{base}/files", params={"path": "/nowhere"})).status_code == 404


async def test_a_paused_sandbox_is_not_woken_by_a_look_into_it(admin: httpx.AsyncClient, base: str) -> None:
    assert (await admin.post(f"{base}/pause")).status_code == 204
    answer = await admin.get(f"{base}/files", params={"path": "/"})
    assert answer.status_code == 409 and "resume" in answer.json()["message"]
    assert (await admin.get(base)).json()["state"] == "paused"


def shell(admin: httpx.AsyncClient, base: str, query: str = "") -> connect:
    url = str(admin.base_url).rstrip("/")
    cookies = "; ".join(f"{name}={value}" for name, value in admin.cookies.items())
    address = f"{url.replace('http', 'ws', 1)}{base}/terminal{query}"
    return connect(address, additional_headers={"Cookie": cookies, "Origin": url}, proxy=None)


async def read_until(socket: ClientConnection, words: bytes) -> bytes:
    seen = b""
    async with asyncio.timeout(60):
        while words not in seen:
            frame = await socket.recv()
            assert isinstance(frame, bytes), frame
            seen += frame
    return seen


async def test_a_terminal_is_typed_into_resized_left_and_taken_up_again(admin: httpx.AsyncClient, base: str) -> None:
    async with shell(admin, base, "?cols=100&rows=30") as socket:
        opened: dict[str, Any] = json.loads(await socket.recv())
        assert opened["type"] == "open" and opened["pid"] > 1
        await socket.send(b"stty size; kept=here; echo read''y\n")
        assert b"30 100" in await read_until(socket, b"ready")
    async with shell(admin, base, f"?pid={opened['pid']}&cols=120&rows=40") as socket:
        assert json.loads(await socket.recv()) == opened
        await socket.send(b"stty size; echo $kept-$((40 + 2))\n")
        assert b"40 120" in await read_until(socket, b"here-42")
        await socket.send(json.dumps({"type": "resize", "cols": 90, "rows": 20}))
        await socket.send(b"stty size; echo siz''ed\n")
        assert b"20 90" in await read_until(socket, b"sized")
        await socket.send(b"exit 7\n")
        last: Any = None
        with pytest.raises(ConnectionClosed):
            async with asyncio.timeout(60):
                while True:
                    frame = await socket.recv()
                    last = frame if isinstance(frame, str) else last
        assert json.loads(last) == {"type": "exit", "code": 7}


async def test_a_terminal_of_nobody_is_refused(admin: httpx.AsyncClient, base: str) -> None:
    for query, status in (("?cols=0", 400), ("?pid=1", 400), ("?pid=999999", 404)):
        with pytest.raises(InvalidStatus) as refused:
            async with shell(admin, base, query):
                pass
        assert refused.value.response.status_code == status, query


async def test_ports_that_something_listens_on_are_listed(admin: httpx.AsyncClient, base: str, engine: Server) -> None:
    async with shell(admin, base) as socket:
        await socket.recv()
        await socket.send(b"python3 -m http.server 8123 >/dev/null 2>&1 & echo start''ed\n")
        await read_until(socket, b"started")

        async def listed() -> bool:
            found = (await admin.get(f"{base}/ports")).json()["ports"]
            return any(row["port"] == 8123 and "8123-" in row["url"] for row in found)

        await until(listed, what="the port in the list")


def test_only_what_listens_is_a_port() -> None:
    table = """  sl  local_address rem_address   st tx_queue
   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000
   1: 0100007F:C33F 00000000:0000 0A 00000000:00000000 00:00000000
   2: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000
"""
    assert parse_listening(table) == [8080]
    assert parse_listening("nonsense" * 1000) == []
