"""Two users who must not see each other, with keys that may do no more than they say."""

from __future__ import annotations

import json

import httpx
import pytest
from tests.e2e.server import Server
from tests.platform.world import Served, until

from sandlot.client import Client, ClientError, NotFound, Unauthorized
from sandlot.platform.core.model import Scope

ROUTES = {
    "connect": {},
    "timeout": {"timeout": 60},
    "delete": {},
    "expose-port": {"port": 80},
    "run-command": {"command": "true"},
    "write-file": {"path": "/tmp/x", "content": ""},
    "read-file": {"path": "/etc/hostname"},
    "download-file": {"path": "/etc/hostname"},
}


async def test_nobody_reads_lists_or_guesses_anothers_sandboxes(elsewhere: Served) -> None:
    ada, bob = await elsewhere.user("ada"), await elsewhere.user("bob")
    hers = await ada.create(session_id="work")
    his = await bob.create(session_id="work")
    assert hers.id != his.id
    assert [info.sandbox_id for info in await bob.list()] == [his.id]

    async with elsewhere.http(await elsewhere.key("bob")) as http:
        for route, body in ROUTES.items():
            foreign = await http.post(f"/sandboxes/{route}", json={"sandbox_id": hers.id, **body})
            unknown = await http.post(f"/sandboxes/{route}", json={"sandbox_id": "sbx_" + "0" * 32, **body})
            assert foreign.status_code == unknown.status_code == 404, route
            assert foreign.json()["message"].replace(hers.id, "X") == unknown.json()["message"].replace(
                "sbx_" + "0" * 32, "X"
            )
        uploaded = await http.post("/sandboxes/upload-file", params={"sandbox_id": hers.id, "path": "/x"}, content=b"")
        assert uploaded.status_code == 404
        assert (await http.get("/sandboxes/status", params={"sandbox_id": hers.id})).status_code == 404
        for path in ("/sandboxes/list", "/events"):
            assert (await http.get(path, params={"user_id": "ada"})).status_code == 403
        assert (await http.post("/sandboxes/create", json={"user_id": "ada"})).status_code == 403

    seen = []
    async for event in bob.events(after=0):
        seen.append(event)
        if event.type == "ready":
            break
    assert {event.user_id for event in seen} == {"bob"}
    assert (await hers.run("echo still here")).stdout == "still here\n"
    await hers.delete()
    await his.delete()


async def test_an_admin_acts_for_the_user_it_names_and_for_no_other(quick: Served) -> None:
    sandbox = await quick.client().create(user_id="ada")
    async with quick.http() as http:
        params = {"sandbox_id": sandbox.id}
        assert (await http.get("/sandboxes/status", params=params)).status_code == 200
        assert (await http.get("/sandboxes/status", params={**params, "user_id": "ada"})).status_code == 200
        assert (await http.get("/sandboxes/status", params={**params, "user_id": "bob"})).status_code == 404


async def test_scopes_are_kept_to(quick: Served) -> None:
    sandbox = await quick.client().create(user_id="ada")
    reading = await quick.user("ada", Scope.READ)
    assert [info.sandbox_id for info in await reading.list()] == [sandbox.id]
    with pytest.raises(ClientError, match="write") as refused:
        await reading.create()
    assert refused.value.code == 403
    writing = await quick.user("ada", Scope.WRITE)
    with pytest.raises(ClientError, match="read"):
        await writing.list()


async def test_a_key_is_sent_in_either_way_and_is_none_of_the_engines(engine: Server) -> None:
    key = json.loads(engine.cli("platform", "key", "create", "--user", "carol", "--json").stdout)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{engine.port}", trust_env=False) as http:
        for headers in ({"X-API-KEY": key["key"]}, {"Authorization": f"Bearer {key['key']}"}):
            assert (await http.get("/sandboxes/list", headers=headers)).json() == {"sandboxes": [], "next": None}
        assert (await http.get("/v2/sandboxes", headers={"X-API-KEY": key["key"]})).status_code == 401
    assert key["key"] not in engine.cli("platform", "key", "list").stdout


@pytest.mark.long
async def test_a_revoked_key_is_dead_within_seconds(engine: Server) -> None:
    key = json.loads(engine.cli("platform", "key", "create", "--user", "dora", "--json").stdout)
    async with Client(f"http://127.0.0.1:{engine.port}", key["key"]) as client:
        assert await client.list() == []
        engine.cli("platform", "key", "revoke", key["id"])

        async def refused() -> bool:
            try:
                await client.list()
            except Unauthorized:
                return True
            return False

        await until(refused, seconds=10, what="the end of the key")


async def test_the_database_holds_no_secret(quick: Served, tmp_path_factory: pytest.TempPathFactory) -> None:
    secret = await quick.key("ada")
    sandbox = await quick.client(secret).create(envs={"TOKEN": "very-secret-value"})
    assert sandbox.info.status == "running"
    stored = b"".join(file.read_bytes() for file in quick.place.glob("platform.db*"))
    assert secret.encode() not in stored
    with pytest.raises(NotFound):
        await quick.client(secret).connect("sbx_none")
