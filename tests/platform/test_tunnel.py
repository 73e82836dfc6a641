"""The tunnel into real sandboxes: what goes through, what does not, and how it comes back."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from e2b import Sandbox as E2BSandbox
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server
from tests.platform.test_provider import real
from tests.platform.test_queue import is_running
from tests.platform.world import Served, until

from sandlot.platform.core.errors import NotFound, Unavailable
from sandlot.platform.core.ports import Box, Channel
from sandlot.platform.providers.e2b import E2BProvider
from sandlot.platform.tunnel.routes import Receive, Scope, Send
from sandlot.platform.tunnel.service import Tunnel, Tunnels

HERE = "http://127.0.0.1:6070"
PID = "cat /tmp/.sandlot-relay/pid"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the path it saw and the digest of the body; `/big/N` with N bytes."""
    digest, more = hashlib.sha256(), True
    while more:
        message = await receive()
        digest.update(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"].startswith("/big/"):
        left = int(scope["path"].split("/")[2])
        while left:
            piece = b"x" * min(left, 65536)
            left -= len(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return
    body = f"{scope['method']} {scope['path']} {digest.hexdigest()}".encode()
    await send({"type": "http.response.body", "body": body})


class Inside:
    """A sandbox with a tunnel, and a shell in it."""

    def __init__(self, provider: E2BProvider, sandbox_id: str, tunnels: Tunnels, resting: set[str]) -> None:
        self.provider, self.id, self.tunnels, self._resting = provider, sandbox_id, tunnels, resting

    async def pause(self) -> None:
        self._resting.add(self.id)  # before it happens, as sessions do
        await self.provider.pause(self.id)

    async def resume(self) -> None:
        await self.provider.connect(self.id, 300)
        self._resting.discard(self.id)

    async def answers(self, path: str) -> None:
        """A connection that was just lost may still look alive, so it is asked more than once."""

        async def answered() -> bool:
            return (await self.run(f"curl -s {HERE}/{path}")).startswith("GET /")

        await until(answered, what=f"an answer from {path}")

    async def open(self) -> Tunnel:
        tunnel = await self.tunnels.open(self.id, "test", {"git": echo})
        await tunnel.ready()
        return tunnel

    async def run(self, command: str, user: str | None = None) -> str:
        said: list[str] = []

        async def listen(_: Channel, text: str) -> None:
            said.append(text)

        box = await self.provider.connect(self.id, 300)
        running = await box.commands.start(command, cwd=None, envs={}, user=user, on_output=listen)
        await asyncio.wait_for(running.wait(), 60)
        return "".join(said)


class Tunnelled:
    """Tunnels into sandboxes of one server, past sessions. Use as an async context manager."""

    def __init__(self, server: Server) -> None:
        self.server, self.provider = server, real(server)
        self.tunnels = Tunnels(self._reach)
        self._made: list[str] = []
        self._resting: set[str] = set()

    async def create(self, **options: Any) -> Inside:
        made = await asyncio.to_thread(lambda: self.server.create(timeout=300, **options))
        return self.of(made.sandbox_id)

    def of(self, sandbox_id: str) -> Inside:
        self._made.append(sandbox_id)
        return Inside(self.provider, sandbox_id, self.tunnels, self._resting)

    async def _reach(self, sandbox_id: str) -> Box | None:
        found = await self.provider.find(sandbox_id)
        if found is None:
            raise NotFound("it is gone")
        if found.is_paused or sandbox_id in self._resting:
            return None
        return await self.provider.connect(sandbox_id, 300)

    async def __aenter__(self) -> Tunnelled:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.tunnels.close()
        for sandbox_id in self._made:
            await self.provider.kill(sandbox_id)


@pytest.fixture
async def tunnelled(engine: Server) -> AsyncIterator[Tunnelled]:
    async with Tunnelled(engine) as made:
        yield made


@pytest.fixture
async def inside(tunnelled: Tunnelled) -> Inside:
    return await tunnelled.create()


async def test_a_sandbox_reaches_its_routes_and_nothing_else(inside: Inside) -> None:
    await inside.open()
    empty = hashlib.sha256().hexdigest()
    assert await inside.run(f"curl -s {HERE}/git/repo.git/info") == f"GET /repo.git/info {empty}"
    assert "404" in await inside.run(f"curl -si {HERE}/tasks")
    assert "404" in await inside.run(f"curl -si {HERE}/")
    assert "400" in await inside.run(f"curl -si --path-as-is {HERE}/git/../tasks")
    assert "400" in await inside.run(f"curl -si {HERE}/git/%2e%2e/tasks")


async def test_large_bodies_come_through_whole_both_ways_side_by_side(inside: Inside) -> None:
    await inside.open()
    size = 24 << 20
    digest = hashlib.sha256(b"\0" * size).hexdigest()
    up = inside.run(f"head -c {size} /dev/zero | curl -s --data-binary @- -H Expect: {HERE}/git/up")
    down = inside.run(f"curl -s {HERE}/git/big/{size} | wc -c")
    small = inside.run(f"for i in 1 2 3 4 5; do curl -s {HERE}/git/$i; echo; done")
    assert (await up) == f"POST /up {digest}"
    assert (await down).strip() == str(size)
    assert [line.split()[1] for line in (await small).splitlines()] == ["/1", "/2", "/3", "/4", "/5"]


async def test_it_comes_back_after_a_pause_without_waking_the_sandbox(inside: Inside) -> None:
    tunnel = await inside.open()
    await inside.pause()
    await until(lambda: not tunnel.is_connected, what="the loss of the connection")
    with pytest.raises(Unavailable):
        await tunnel.ready(within_s=1.0)
    found = await inside.provider.find(inside.id)
    assert found is not None and found.is_paused
    await inside.resume()
    await tunnel.ready()
    await inside.answers("git/after")


async def test_it_comes_back_when_the_relay_is_killed_or_the_platform_starts_again(inside: Inside) -> None:
    tunnel = await inside.open()
    before = await inside.run(PID)
    await inside.run("kill -9 $(cat /tmp/.sandlot-relay/pid)")

    async def is_another() -> bool:
        return (await inside.run(PID)) not in ("", before)

    await until(is_another, what="the start of another relay")
    await tunnel.ready()
    await inside.answers("git/killed")
    after = await inside.run(PID)
    await inside.open()  # as the next start of the platform would
    await inside.answers("git/again")
    assert await inside.run(PID) == after


async def test_closing_it_ends_the_relay_and_the_end_of_the_sandbox_ends_it(inside: Inside) -> None:
    tunnel = await inside.open()
    await tunnel.close()

    async def is_gone() -> bool:
        return "refused" in await inside.run(f"curl -s {HERE}/git/x || echo refused")

    await until(is_gone, what="the end of the relay")
    tunnel = await inside.open()
    await inside.provider.kill(inside.id)
    await until(lambda: not tunnel.is_connected, what="the loss of the connection")
    with pytest.raises(NotFound):
        await tunnel.ready()


async def test_nobody_connects_to_a_relay_without_the_token_of_the_moment(inside: Inside) -> None:
    tunnel = await inside.open()
    hello = (
        "curl -si -H 'Upgrade: websocket' -H 'Connection: Upgrade' -H 'Sec-WebSocket-Version: 13' "
        "-H 'Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==' -H 'Sec-WebSocket-Protocol: sandlot-tunnel.1' "
        "-H 'X-Sandlot-Tunnel: guess' http://127.0.0.1:6071/"
    )
    assert "401" in await inside.run(hello)
    assert tunnel.is_connected
    assert (await inside.run(f"curl -s {HERE}/git/still")).startswith("GET /still ")


async def test_a_sandbox_without_internet_has_its_routes(tunnelled: Tunnelled) -> None:
    inside = await tunnelled.create(allow_internet_access=False)
    await inside.open()
    assert (await inside.run(f"curl -s {HERE}/git/offline")).startswith("GET /offline ")


async def test_a_sandbox_with_private_ports_has_its_routes(tunnelled: Tunnelled) -> None:
    inside = await tunnelled.create(network={"allow_public_traffic": False})
    await inside.open()
    assert (await inside.run(f"curl -s {HERE}/git/private")).startswith("GET /private ")


async def test_sessions_at_another_server_have_tunnels_that_follow_them(elsewhere: Served) -> None:
    client = await elsewhere.user("ada")
    sandbox = await client.create(session_id="tunnel")
    await until(lambda: is_running(sandbox), what="the start of the sandbox")
    sessions = elsewhere.deps.sessions
    tunnels = Tunnels(sessions.running_box)
    try:
        tunnel = await tunnels.open(sandbox.id, "test", {"git": echo})
        await tunnel.ready()
        done = await sandbox.run(f"curl -s {HERE}/git/session")
        assert done.stdout.startswith("GET /session ")
        await sandbox.delete()
        await until(lambda: not tunnel.is_connected, what="the loss of the connection")
        with pytest.raises(NotFound):
            await tunnel.ready()
    finally:
        await tunnels.close()


async def test_under_gvisor_the_relay_lives_through_a_pause_and_a_fork_has_a_tunnel_of_its_own(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with in_pristine(tmp_path_factory, "gvisor", pool_size="0", boot_snapshots="0") as server:
        async with Tunnelled(server) as tunnelled:
            parent = await tunnelled.create()
            tunnel = await parent.open()
            before = await parent.run(PID)
            await parent.pause()
            await until(lambda: not tunnel.is_connected, what="the loss of the connection")
            await parent.resume()
            await tunnel.ready()
            await parent.answers("git/resumed")
            assert await parent.run(PID) == before

            (made,) = await asyncio.to_thread(lambda: fork(server, parent.id))
            child = tunnelled.of(made)
            await tunnel.ready()
            other = await tunnelled.tunnels.open(child.id, "child", {"models": echo})
            await other.ready()
            await child.answers("models/x")
            assert "404" in await child.run(f"curl -si {HERE}/git/x")
            await parent.answers("git/parent")


def fork(server: Server, sandbox_id: str) -> list[str]:
    made = E2BSandbox.connect(sandbox_id, **server.sdk).fork(count=1, timeout=300)
    return [child.sandbox.sandbox_id if hasattr(child, "sandbox") else child.sandbox_id for child in made]


async def test_where_the_image_has_no_python_the_one_of_envd_runs_the_relay(inside: Inside) -> None:
    await inside.run(
        "for p in $(ls /usr/bin/python* /usr/local/bin/python* 2>/dev/null); do mv $p $p.away; done", "root"
    )
    assert "none" in await inside.run("command -v python3 || echo none")
    await inside.open()
    await inside.answers("git/plain")
