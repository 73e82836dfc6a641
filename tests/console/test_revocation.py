"""A revoked key and a logout cut what is open: event streams and WebSockets, of the key itself and of its browsers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from tests.console.browsers import logged_in
from tests.platform.world import Served
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from sandlot.platform.core.model import Scope
from sandlot.platform.identity.keys import Access
from sandlot.platform.store import Database, SqlKeys


@asynccontextmanager
async def listening(client: httpx.AsyncClient) -> AsyncIterator[asyncio.Task[None]]:
    """A reader of events that ends only when its stream does."""

    async def read(response: httpx.Response) -> None:
        try:
            async for _ in response.aiter_bytes():
                pass
        except httpx.TransportError:
            pass

    async with client.stream("GET", "/events") as response:
        assert response.status_code == 200
        reading = asyncio.ensure_future(read(response))
        yield reading
        reading.cancel()


async def over(reading: asyncio.Task[None]) -> None:
    async with asyncio.timeout(30):
        await reading


async def key_id(served: Served, user: str) -> str:
    async with served.http() as admin:
        keys = (await admin.get("/console/api/keys")).json()["keys"]
    return next(str(key["id"]) for key in keys if key["user_id"] == user)


async def test_revoking_a_key_cuts_its_streams_and_those_of_its_browsers_and_no_others(quick: Served) -> None:
    key = await quick.key("ada")
    async with (
        quick.http(key) as program,
        logged_in(quick.url, key) as browser,
        quick.http(await quick.key("bob")) as bob,
        listening(program) as one,
        listening(browser) as two,
        listening(bob) as other,
        quick.http() as admin,
    ):
        assert (await admin.delete(f"/console/api/keys/{await key_id(quick, 'ada')}")).status_code == 204
        await over(one)
        await over(two)
        await asyncio.sleep(0.2)
        assert not other.done()


async def test_a_terminal_is_closed_with_the_key_that_opened_it(quick: Served) -> None:
    key = await quick.key("ada")
    async with quick.http(key) as ada, quick.http() as admin:
        made = (await ada.post("/sandboxes/create", json={"wait": 30})).json()
        address = f"{quick.url.replace('http', 'ws', 1)}/sandboxes/{made['sandbox_id']}/terminal"
        async with connect(address, additional_headers={"X-API-KEY": key}, proxy=None) as socket:
            assert (await admin.delete(f"/console/api/keys/{await key_id(quick, 'ada')}")).status_code == 204
            with pytest.raises(ConnectionClosed) as closed:
                async with asyncio.timeout(30):
                    while True:
                        await socket.recv()
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008


async def test_a_logout_ends_the_streams_of_that_browser_alone(quick: Served) -> None:
    key = await quick.key("ada")
    async with (
        logged_in(quick.url, key) as browser,
        logged_in(quick.url, key) as another,
        listening(browser) as one,
        listening(another) as other,
    ):
        assert (await browser.post("/console/logout")).status_code == 204
        await over(one)
        await asyncio.sleep(0.2)
        assert not other.done()


async def test_a_key_that_another_process_revoked_is_noticed(quick: Served) -> None:
    async with quick.http(await quick.key("ada")) as program, listening(program) as reading:
        database = Database.sqlite(quick.place / "platform.db")
        elsewhere = Access(store=SqlKeys(database), clock=quick.deps.sessions._state.clock)
        await elsewhere.revoke(await key_id(quick, "ada"))
        await database.close()
        await over(reading)


async def test_the_last_use_of_a_key_is_shown(quick: Served) -> None:
    key = await quick.key("ada", Scope.READ)
    async with quick.http() as admin, quick.http(key) as ada:
        before = (await admin.get("/console/api/keys")).json()["keys"]
        assert [one["last_used_at"] for one in before] == [None]
        assert (await ada.get("/console/me")).status_code == 200
        after = (await admin.get("/console/api/keys")).json()["keys"]
        assert after[0]["last_used_at"] is not None
