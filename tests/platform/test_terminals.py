"""Terminals over a WebSocket, beside the engine on one port and alone; and which requests on that port are whose."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.e2e.server import Server
from tests.platform.fakes import ScriptedProvider
from tests.platform.test_queue import is_running
from tests.platform.world import ADMIN, Served, by_url, scripted, until
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from sandlot.client import Client, Sandbox
from sandlot.platform.api.routing import Routing
from sandlot.platform.core.model import Scope


def terminal(url: str, sandbox_id: str, key: str | None = None, query: str = "", **options: Any) -> connect:
    address = f"{url.replace('http', 'ws', 1)}/sandboxes/{sandbox_id}/terminal{query}"
    headers = {"X-API-KEY": key} if key else {}
    return connect(address, additional_headers=headers, proxy=None, **options)


async def read_until(socket: ClientConnection, words: bytes) -> bytes:
    seen = b""
    async with asyncio.timeout(30):
        while words not in seen:
            frame = await socket.recv()
            assert isinstance(frame, bytes), frame
            seen += frame
    return seen


async def read_to_the_end(socket: ClientConnection) -> tuple[dict[str, Any], int, str]:
    """The last text frame, and how it was closed."""
    last: dict[str, Any] = {}
    async with asyncio.timeout(30):
        try:
            while True:
                frame = await socket.recv()
                last = json.loads(frame) if isinstance(frame, str) else last
        except ConnectionClosed as closed:
            assert closed.rcvd is not None
            return last, closed.rcvd.code, closed.rcvd.reason


@pytest.fixture(params=["beside the engine", "by url and key"])
async def client(request: pytest.FixtureRequest, engine: Server, tmp_path: Path) -> AsyncIterator[tuple[str, Client]]:
    url = f"http://127.0.0.1:{engine.port}"
    if request.param == "beside the engine":
        async with Client(url, engine.key) as made:
            yield engine.key, made
        return
    async with Served(tmp_path, by_url(url, engine.key)) as served:
        yield ADMIN, served.client()


async def test_a_shell_of_a_real_sandbox(client: tuple[str, Client]) -> None:
    key, made = client
    sandbox = await made.create(user_id="ada")
    url = str(made._http.base_url).rstrip("/")
    async with terminal(url, sandbox.id, key, "?cols=100&rows=30&cwd=/tmp") as socket:
        await socket.send(b"stty size; pwd; echo $((40 + 2))-$TERM\n")
        seen = await read_until(socket, b"42-xterm")
        assert b"30 100" in seen and b"/tmp" in seen
        await socket.send(json.dumps({"type": "resize", "cols": 120, "rows": 40}))
        await socket.send(b"stty size\n")
        await read_until(socket, b"40 120")
        await socket.send(b"exit 5\n")
        assert await read_to_the_end(socket) == ({"type": "exit", "exit_code": 5}, 1000, "exit code 5")
    async with terminal(url, sandbox.id, key) as socket:
        await socket.send(b"echo $$ > /tmp/shell; echo read''y\n")
        await read_until(socket, b"ready")

    async def ended() -> bool:
        return (await sandbox.run("kill -0 $(cat /tmp/shell)")).exit_code != 0

    await until(ended, what="the end of a shell whose client has left")
    await sandbox.delete()


async def refused(connection: connect) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as raised:
        async with connection:
            pass
    response = raised.value.response
    return response.status_code, json.loads(response.body or b"{}").get("message", "")


@pytest.fixture
async def sandbox(quick: Served) -> Sandbox:
    return await (await quick.user("ada")).create(session_id="shell")


async def test_a_handshake_is_refused_as_a_request_would_be(quick: Served, sandbox: Sandbox) -> None:
    ada, bob, reading = await quick.key("ada"), await quick.key("bob"), await quick.key("ada", Scope.READ)
    assert (await refused(terminal(quick.url, sandbox.id)))[0] == 401
    assert (await refused(terminal(quick.url, sandbox.id, "slp_guess")))[0] == 401
    assert (await refused(terminal(quick.url, sandbox.id, reading)))[0] == 403
    assert await refused(terminal(quick.url, sandbox.id, bob)) == (404, f"sandbox {sandbox.id!r} was not found")
    status, words = await refused(terminal(quick.url, sandbox.id, ada, "?cols=0"))
    assert status == 400 and "cols" in words
    assert (await refused(terminal(quick.url, f"{sandbox.id}/more", ada)))[0] == 403, "there is no such route"


async def test_a_browser_sends_its_key_as_a_subprotocol(quick: Served, sandbox: Sandbox) -> None:
    key = await quick.key("ada")
    offered: list[Any] = ["sandlot", f"sandlot.key.{key}"]
    async with terminal(quick.url, sandbox.id, subprotocols=offered) as socket:
        assert socket.subprotocol == "sandlot", "the key is not sent back"
        await socket.send(b"exit 0\n")
        assert (await read_to_the_end(socket))[0] == {"type": "exit", "exit_code": 0}
    wrong: list[Any] = ["sandlot", "sandlot.key.slp_guess"]
    assert (await refused(terminal(quick.url, sandbox.id, subprotocols=wrong)))[0] == 401


async def test_frames_that_make_no_sense_end_the_connection(quick: Served, sandbox: Sandbox) -> None:
    key = await quick.key("ada")
    cases: list[tuple[str | bytes, int]] = [("hello", 1008), ('{"type": "resize"}', 1008), (b"x" * (2 << 20), 1009)]
    for frame, code in cases:
        async with terminal(quick.url, sandbox.id, key) as socket:
            await socket.send(frame)
            assert (await read_to_the_end(socket))[1] == code


async def test_an_open_terminal_keeps_its_sandbox_awake_and_is_logged(
    tmp_path: Path, provider: ScriptedProvider
) -> None:
    async with Served(tmp_path, scripted(idle_pause_s=1), {"scripted": provider}) as served:
        ada = await served.user("ada")
        sandbox = await ada.create()
        async with terminal(served.url, sandbox.id, await served.key("ada")):
            await asyncio.sleep(2.5)
            assert await is_running(sandbox)
        types = []
        async for event in ada.events(after=0, types=["terminal.*", "paused"]):
            types.append(event.type)
            if event.type == "paused":
                break
        assert types == ["terminal.opened", "terminal.closed", "paused"]


def test_the_first_segment_of_a_path_says_whose_it_is() -> None:
    routing = Routing(["/events", "/tasks/{id}/events", "/sandboxes/create", "/sandboxes/sbx_{name}/terminal"])
    cases = {
        "/events": True,
        "/events/more": True,
        "/tasks": True,
        "/tasks/task_1/events": True,
        "/eventsmore": False,
        "/sandboxes": False,
        "/sandboxes/create": True,
        "/sandboxes/create/more": False,
        "/sandboxes/i1234": False,
        "/sandboxes/i1234/terminal": False,
        "/sandboxes/sbx_1/terminal": True,
        "/sandboxes/sbx_1": False,
        "/sandboxes/sbx_1/x/terminal": False,
        "/v2/sandboxes": False,
        "/templates/events": False,
        "": False,
        "/": False,
    }
    for path, expected in cases.items():
        for kind in ("http", "websocket"):
            assert routing.matches({"type": kind, "path": path}) is expected, path
    assert not routing.matches({"type": "lifespan"})


async def test_the_engine_keeps_its_own_routes(engine: Server) -> None:
    headers = {"X-API-KEY": engine.key}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{engine.port}", headers=headers, trust_env=False) as http:
        assert isinstance((await http.get("/v2/sandboxes")).json(), list)
        assert isinstance((await http.get("/templates")).json(), list)
        assert (await http.get("/sandboxes/i0000")).status_code == 404
        assert (await http.get("/sandboxes/sbx_0000")).status_code == 404
        own = await http.get("/events/nothing")
        assert own.status_code == 404 and "/platform/docs" in own.json()["message"]
