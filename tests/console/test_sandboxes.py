"""Real sandboxes through the console's routes, beside the engine on one port."""

from __future__ import annotations

import httpx
from tests.console.browsers import logged_in
from tests.e2e.server import Server
from tests.platform.world import until

from sandlot.client import Client


async def state(http: httpx.AsyncClient, sandbox_id: str) -> str | None:
    rows = (await http.get("/console/api/sandboxes")).json()["sandboxes"]
    return next((row["state"] for row in rows if row["id"] == sandbox_id), None)


async def test_admins_see_all_sandboxes_and_users_those_of_their_sessions(engine: Server) -> None:
    url = f"http://127.0.0.1:{engine.port}"
    async with logged_in(url, engine.key) as admin, Client(url, engine.key) as client:
        keys = [
            (await admin.post("/console/api/keys", json={"name": name, "user_id": name})).json()["secret"]
            for name in ("ada", "bob")
        ]
        session = await client.create(user_id="ada", session_id="work")
        made = await admin.post("/v2/sandboxes", json={"templateID": "base", "timeout": 300}, headers=_key(engine))
        plain = made.json()["sandboxID"]
        rows = {row["id"]: row for row in (await admin.get("/console/api/sandboxes")).json()["sandboxes"]}
        assert rows[plain]["session_id"] is None and rows[plain]["template"] == "base"
        owned = next(row for row in rows.values() if row["session_id"] == session.id)
        assert (owned["user_id"], owned["name"], owned["state"]) == ("ada", "work", "running")
        assert owned["isolation"] and owned["cpu"] >= 1 and not any(n.startswith("sandlot-") for n in owned["metadata"])
        async with logged_in(url, keys[0]) as ada, logged_in(url, keys[1]) as bob:
            assert [row["id"] for row in (await ada.get("/console/api/sandboxes")).json()["sandboxes"]] == [owned["id"]]
            assert (await bob.get("/console/api/sandboxes")).json()["sandboxes"] == []
            for name in (owned["id"], session.id, plain):
                assert (await bob.get(f"/console/api/sandboxes/{name}")).status_code == 404
                assert (await bob.post(f"/console/api/sandboxes/{name}/kill")).status_code == 404
            assert (await ada.get(f"/console/api/sandboxes/{session.id}")).json()["id"] == owned["id"]
            assert (await ada.get(f"/console/api/sandboxes/{plain}")).status_code == 404
        for name in (session.id, plain):
            assert (await admin.post(f"/console/api/sandboxes/{name}/kill")).status_code == 204


async def test_a_sandbox_is_paused_resumed_given_time_and_ended(engine: Server) -> None:
    url = f"http://127.0.0.1:{engine.port}"
    async with logged_in(url, engine.key) as admin:
        made = await admin.post("/v2/sandboxes", json={"templateID": "base", "timeout": 300}, headers=_key(engine))
        sandbox_id = made.json()["sandboxID"]
        base = f"/console/api/sandboxes/{sandbox_id}"
        before = (await admin.get(base)).json()["ends_at"]
        assert (await admin.post(f"{base}/timeout", json={"timeout": 3000})).status_code == 204
        assert (await admin.get(base)).json()["ends_at"] > before
        points = (await admin.get(f"{base}/metrics")).json()["points"]
        assert points and points[-1]["memory_total"] > 0
        lines = (await admin.get(f"{base}/logs")).json()["lines"]
        assert any("running" in line["message"] for line in lines)
        for act, expected in (("pause", "paused"), ("resume", "running")):
            answer = await admin.post(f"{base}/{act}")
            assert answer.status_code == 204, answer.text
            assert await state(admin, sandbox_id) == expected
        assert (await admin.post(f"{base}/kill")).status_code == 204

        async def gone() -> bool:
            return await state(admin, sandbox_id) is None

        await until(gone, what="the end of the sandbox")
        assert (await admin.get(base)).status_code == 404


async def test_templates_and_their_builds(engine: Server) -> None:
    async with logged_in(f"http://127.0.0.1:{engine.port}", engine.key) as admin:
        found = (await admin.get("/console/api/templates")).json()["templates"]
        base = next(row for row in found if "base" in row["names"])
        detail = (await admin.get(f"/console/api/templates/{base['id']}")).json()
        assert base["disk_bytes"] > 0 and base["own_disk_bytes"] >= 0
        assert detail["template"]["id"] == base["id"] and detail["builds"][0]["state"] == "ready"
        assert (await admin.get("/console/api/templates/nothing-of-this-name")).status_code == 404


async def test_the_bare_address_shows_browsers_the_console_and_others_what_it_did(engine: Server) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{engine.port}", trust_env=False) as http:
        assert (await http.get("/", headers={"Accept": "text/html"})).headers["location"] == "/console/"
        plain = await http.get("/")
        assert plain.status_code == 200 and plain.headers["content-type"] == "application/json"
        assert (await http.get("/console/")).status_code == 200
        for host in ("8000-i1234567890abcdef.localhost", "evil.example"):
            answer = await http.get("/console/", headers={"Host": host})
            assert answer.status_code in (404, 502), "a sandbox's host, or nobody's"


def _key(engine: Server) -> dict[str, str]:
    return {"X-API-KEY": engine.key}


async def test_the_command_line_prints_a_link_that_logs_a_browser_in(engine: Server) -> None:
    link = engine.cli("console").stdout.strip()
    async with httpx.AsyncClient(trust_env=False, follow_redirects=True) as http:
        page = await http.get(link)
        assert page.status_code == 200 and page.url.path == "/console/"
        me = await http.get(f"http://127.0.0.1:{engine.port}/console/me")
        assert me.json()["is_admin"]
