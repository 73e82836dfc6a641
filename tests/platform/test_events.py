"""Events: every reader sees every event once, whatever the others do and whatever becomes of the server; webhooks too."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from tests.platform.fakes import ScriptedProvider
from tests.platform.world import ADMIN, Served, scripted, until

from sandlot.client import Client
from sandlot.platform.core.model import Webhook
from sandlot.platform.events.webhooks import wait_after

READERS = 200


async def read(client: Client, count: int, **options: Any) -> list[int]:
    """Ids of the first `count` events."""
    ids: list[int] = []
    stream = client.events(**options)
    async for event in stream:
        ids.append(event.id)
        if len(ids) >= count:
            break
    await stream.aclose()  # type: ignore[attr-defined]
    return ids


async def test_filters_choose_by_user_session_sandbox_and_type(quick: Served) -> None:
    admin = quick.client()
    one = await admin.create(user_id="ada", session_id="one")
    await admin.create(user_id="ada", session_id="two")
    other = await admin.create(user_id="bob", session_id="one")
    await other.run("echo hi")
    cases: list[tuple[dict[str, Any], set[tuple[str, str]], int]] = [
        ({"user_id": "ada"}, {("ada", "one"), ("ada", "two")}, 4),
        ({"session_id": "one", "user_id": "bob"}, {("bob", "one")}, 5),
        ({"sandbox_id": one.id}, {("ada", "one")}, 2),
        ({"types": ["command.started", "command.ended"]}, {("bob", "one")}, 2),
        ({"types": ["command.*"]}, {("bob", "one")}, 3),
        ({"subject": f"sandbox:{one.id}"}, {("ada", "one")}, 2),
        ({"subject": "sandbox", "user_id": "bob"}, {("bob", "one")}, 5),
    ]
    for options, expected, count in cases:
        seen = []
        stream = admin.events(after=0, **options)
        async for event in stream:
            seen.append((event.user_id, event.session_id))
            if len(seen) == count:
                break
        await stream.aclose()  # type: ignore[attr-defined]
        assert set(seen) == expected, options
    async with quick.http() as http:
        assert (await http.get("/events", params={"type": "unheard-of"})).status_code == 400
        assert (await http.get("/events", params={"subject": "Task:1"})).status_code == 400
        assert (await http.get("/events", params={"subject": "a:b", "sandbox_id": one.id})).status_code == 400
        assert (await http.get("/events", headers={"Last-Event-ID": "x"})).status_code == 400


async def test_a_quiet_stream_says_that_it_is_still_there(quick: Served) -> None:
    async with quick.http() as http, http.stream("GET", "/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.aiter_lines()
        async with asyncio.timeout(10):
            while not (await anext(lines)).startswith(":"):
                pass


async def test_two_hundred_readers_see_everything_while_one_does_not_read(
    quick: Served, provider: ScriptedProvider
) -> None:
    sandbox = await quick.client().create(user_id="ada")
    stalled = socket.create_connection(("127.0.0.1", quick.port))
    stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stalled.sendall(f"GET /events?since=0 HTTP/1.1\r\nHost: x\r\nX-API-KEY: {ADMIN}\r\n\r\n".encode())
    chosen = ["created", "ready", "command.started", "command.ended", "deleted"]
    try:
        client = quick.client()
        readers = [asyncio.create_task(read(client, 23, after=0, types=chosen)) for _ in range(READERS)]
        for _ in range(10):  # with output that no connection's buffers hold
            assert (await sandbox.run("flood 1000000")).exit_code == 0
        await sandbox.delete()
        async with asyncio.timeout(60):
            seen = await asyncio.gather(*readers)
        first = seen[0]
        assert first == sorted(set(first))
        assert all(ids == first for ids in seen)
    finally:
        stalled.close()


async def test_a_reader_that_comes_back_after_a_restart_gets_every_missed_event_once(
    quick: Served, provider: ScriptedProvider
) -> None:
    ada = await quick.user("ada")
    sandbox = await ada.create(session_id="x")
    stream = ada.events(after=0)
    seen = [(await anext(stream)).id for _ in range(2)]
    following = asyncio.create_task(_collect(stream, "deleted"))
    await sandbox.run("echo before")
    await quick.restart()
    await sandbox.run("echo after")
    await sandbox.delete()
    async with asyncio.timeout(20):
        seen += await following
    everything = await read(quick.client(), len(seen), after=0)
    assert seen == everything


async def _collect(stream: Any, last: str) -> list[int]:
    ids = []
    async for event in stream:
        ids.append(event.id)
        if event.type == last:
            break
    await stream.aclose()
    return ids


async def test_who_is_far_behind_reads_from_the_table(quick: Served) -> None:
    admin = quick.client()
    following = asyncio.create_task(_collect(admin.events(after=0), "deleted"))
    sandbox = await admin.create(user_id="ada")
    for number in range(10):
        await sandbox.run(f"echo {number}")
    await sandbox.delete()
    async with asyncio.timeout(60):
        live = await following
    await quick.restart()  # nothing is in memory now
    async with asyncio.timeout(60):
        assert await _collect(quick.client().events(after=0), "deleted") == live
    assert len(live) == len(set(live)) == 33


# -- webhooks --------------------------------------------------------------------------------------------------------


@dataclass
class Listener:
    """Somebody who wants to be told, and is not always in the mood."""

    url: str = ""
    refuse: int = 0
    taken: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    attempts: int = 0

    async def take(self, request: web.Request) -> web.Response:
        self.attempts += 1
        body = await request.read()
        if self.refuse > 0:
            self.refuse -= 1
            return web.Response(status=500)
        self.taken.append((dict(request.headers), body))
        return web.Response()

    def types(self) -> list[str]:
        return sorted(json.loads(body)["type"] for _, body in self.taken)


@asynccontextmanager
async def listening() -> AsyncIterator[Listener]:
    listener = Listener()
    app = web.Application()
    app.router.add_post("/hook", listener.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    listener.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield listener
    finally:
        await runner.cleanup()


def hooked(url: str) -> Any:
    types = frozenset({"created", "ready", "deleted"})
    return scripted(webhooks=[Webhook(name="ci", url=url, secret="hush", types=types)])


async def test_webhooks_are_signed_and_tried_again_until_they_are_taken(
    tmp_path: Path, provider: ScriptedProvider
) -> None:
    async with listening() as listener:
        listener.refuse = 2
        async with Served(tmp_path, hooked(listener.url), {"scripted": provider}) as served:
            sandbox = await served.client().create(user_id="ada")
            await sandbox.run("echo not for them")
            await sandbox.delete()
            await until(lambda: len(listener.taken) == 3, what="all deliveries")
    assert listener.types() == ["created", "deleted", "ready"]
    assert listener.attempts == 5
    for headers, body in listener.taken:
        signed = headers["X-Sandlot-Timestamp"].encode() + b"." + body
        assert headers["X-Sandlot-Signature"] == "sha256=" + hmac.new(b"hush", signed, hashlib.sha256).hexdigest()
    assert len({headers["X-Sandlot-Delivery"] for headers, _ in listener.taken}) == 3


async def test_webhooks_that_could_not_be_delivered_survive_a_restart(
    tmp_path: Path, provider: ScriptedProvider
) -> None:
    async with listening() as listener:
        listener.refuse = 1000
        async with Served(tmp_path, hooked(listener.url), {"scripted": provider}) as served:
            await served.client().create(user_id="ada")
            await until(lambda: listener.attempts >= 2, what="the first attempts")
            await served.stop()
            listener.refuse = 0
            await served.start()
            await until(lambda: listener.types() == ["created", "ready"], what="the deliveries")


def test_the_waits_between_attempts_grow_and_stay_bounded() -> None:
    waits = [wait_after(attempt).total_seconds() for attempt in range(12)]
    assert waits[0] <= 1 and all(later > earlier for earlier, later in itertools.pairwise(waits[:8]))
    assert max(waits) <= 7200
