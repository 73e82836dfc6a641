"""Protected ports of real sandboxes, opened from the console: what a hostile service in one gets to see, and cannot use."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from e2b import Sandbox
from tests.console.browsers import logged_in
from tests.e2e.server import Server
from tests.platform.world import until

# Answers with all that reached it, and tries to have the browser come back without its cookie.
HOSTILE = """
import http.server, json
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"path": self.path, "headers": self.headers.items()}).encode()
        self.send_response(200)
        self.send_header("Set-Cookie", "theirs=1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""


@pytest.fixture
async def admin(engine: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with logged_in(f"http://127.0.0.1:{engine.port}", engine.key) as made:
        yield made


@pytest.fixture
def pair(engine: Server) -> Iterator[list[Sandbox]]:
    made = [engine.create(network={"allow_public_traffic": False}) for _ in range(2)]
    for sandbox in made:
        sandbox.files.write("/tmp/hostile.py", HOSTILE)
        sandbox.commands.run("python3 /tmp/hostile.py", background=True)
    yield made
    for sandbox in made:
        sandbox.kill()


async def test_a_protected_port_opens_by_a_grant_of_the_console_and_its_service_learns_nothing(
    engine: Server, admin: httpx.AsyncClient, pair: list[Sandbox]
) -> None:
    mine, other = (sandbox.sandbox_id for sandbox in pair)
    path = f"/console/api/sandboxes/{mine}/ports/8000/grant"

    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{engine.port}", trust_env=False, timeout=60) as browser:

        async def ready() -> bool:
            headers = {"Host": host(engine, other), "e2b-traffic-access-token": str(pair[1].traffic_access_token)}
            return (await browser.get("/", headers=headers)).status_code == 200

        await until(ready, what="the services in both sandboxes")
        made = (await admin.post(path)).json()
        url = httpx.URL(made["url"])
        assert made["one_time"] and made["expires_at"] and url.netloc.decode() == host(engine, mine)
        assert (await browser.get("/", headers={"Host": host(engine, mine)})).status_code == 403
        opened = await browser.get(url.raw_path.decode(), headers={"Host": host(engine, mine)})
        assert opened.status_code == 303 and opened.headers["location"] == "/"
        cookie = opened.headers["set-cookie"].partition(";")[0]
        sent = {"Host": host(engine, mine), "Cookie": f"theirs=1; {cookie}", "Sec-Fetch-Site": "same-origin"}
        page = await browser.get("/", headers=sent)
        assert page.status_code == 200, page.text
        told = json.dumps(page.json())
        assert "sandlot_" not in told and cookie.partition("=")[2] not in told and url.query.decode() not in told
        assert {name.lower(): value for name, value in page.json()["headers"]}["cookie"] == "theirs=1"
        elsewhere = {**sent, "Host": host(engine, other)}
        assert (await browser.get("/", headers=elsewhere)).status_code == 403, "no other sandbox opens with it"
        from_other = {**sent, "Sec-Fetch-Site": "same-site", "Origin": f"http://{host(engine, other)}"}
        assert (await browser.get("/", headers=from_other)).status_code == 403, "nor for another sandbox's page"
        again = await browser.get(url.raw_path.decode(), headers={"Host": host(engine, mine)})
        assert "set-cookie" not in again.headers, "the address works once"


async def test_grants_are_for_who_may_see_the_sandbox(
    engine: Server, admin: httpx.AsyncClient, pair: list[Sandbox]
) -> None:
    key = (await admin.post("/console/api/keys", json={"name": "eve", "user_id": "eve"})).json()["secret"]
    path = f"/console/api/sandboxes/{pair[0].sandbox_id}/ports/8000/grant"
    async with logged_in(f"http://127.0.0.1:{engine.port}", key) as eve:
        assert (await eve.post(path)).status_code == 404


def host(engine: Server, sandbox_id: str) -> str:
    return f"8000-{sandbox_id}.localhost:{engine.port}"
