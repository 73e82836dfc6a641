"""Browsers at protected ports: a grant becomes a cookie, once, for one port, and the sandbox sees neither."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from tests.api.servers import Doors, service
from tests.api.wire import echo
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from sandlot.engine.control.port_grants import COOKIE_S, GRANT_S, PortGrants
from sandlot.engine.gateway.browser_entry import COOKIE, BrowserEntry
from sandlot.engine.gateway.routes import Target

NAVIGATE = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


async def private(doors: Doors) -> str:
    return str((await doors.create(network={"allowPublicTraffic": False}))["sandboxID"])


def host(doors: Doors, sandbox: str, port: int = 8000) -> str:
    return f"{port}-{sandbox}.localhost:{doors.port}"


async def granted(doors: Doors, sandbox: str, port: int = 8000) -> str:
    async with doors.client() as api:
        answer = await api.post(f"/sandboxes/{sandbox}/ports/{port}/grants")
        assert answer.status_code == 201, answer.text
        assert answer.json()["parameter"] == "sandlot_grant" and answer.json()["needed"]
        return str(answer.json()["grant"])


async def cookie_of(doors: Doors, client: httpx.AsyncClient, sandbox: str, port: int = 8000) -> str:
    grant = await granted(doors, sandbox, port)
    answer = await client.get(f"/?sandlot_grant={grant}", headers={"Host": host(doors, sandbox, port)})
    assert answer.status_code == 303, answer.text
    return answer.headers["set-cookie"].partition(";")[0]


def seen(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["headers"])


async def test_a_grant_becomes_a_cookie_once_and_the_sandbox_sees_neither(doors: Doors) -> None:
    sandbox = await private(doors)
    at = {"Host": host(doors, sandbox)}
    async with service(echo) as port, doors.client(key=None) as client:
        doors.ports[8000] = port
        assert (await client.get("/", headers=at)).status_code == 403
        grant = await granted(doors, sandbox)
        path = f"{client.base_url}".rstrip("/") + "//evil.example/a%2Fb"
        answer = await client.get(f"{path}?x=1&sandlot_grant={grant}&y=%26", headers=at)
        assert answer.status_code == 303 and answer.headers["location"] == "/evil.example/a%2Fb?x=1&y=%26"
        assert answer.headers["referrer-policy"] == "no-referrer" and answer.headers["cache-control"] == "no-store"
        cookie = answer.headers["set-cookie"]
        assert re.fullmatch(
            rf"{COOKIE}=\d+\.[0-9a-f]{{64}}; Path=/; Max-Age={COOKIE_S}; HttpOnly; SameSite=Lax", cookie
        )
        assert "domain" not in cookie.lower(), "it belongs to this host alone"
        own = cookie.partition(";")[0]
        headers = {**at, "Cookie": f"theirs=1; {own}; other=2", "Sec-Fetch-Site": "same-origin"}
        inside = seen(await client.get("/", headers=headers))
        assert inside["cookie"] == "theirs=1; other=2"
        assert "cookie" not in seen(await client.get("/", headers={**at, "Cookie": own}))
        again = await client.get(f"/?sandlot_grant={grant}", headers=at)
        assert again.status_code == 303 and "set-cookie" not in again.headers, "it works once"


async def test_a_grant_and_its_cookie_are_good_for_one_port_of_one_sandbox(doors: Doors) -> None:
    mine, other = await private(doors), await private(doors)
    async with service(echo) as port, doors.client(key=None) as client:
        doors.ports[8000] = doors.ports[8001] = port
        for sandbox, at in ((other, 8000), (mine, 8001)):
            grant = await granted(doors, mine)
            headers = {"Host": host(doors, sandbox, at)}
            stolen = await client.get(f"/?sandlot_grant={grant}", headers=headers)
            assert stolen.status_code == 303 and "set-cookie" not in stolen.headers
            late = await client.get(f"/?sandlot_grant={grant}", headers={"Host": host(doors, mine)})
            assert "set-cookie" not in late.headers, "what was shown elsewhere is spent"
            own = await cookie_of(doors, client, mine)
            assert (await client.get("/", headers={**headers, "Cookie": own})).status_code == 403
        assert (await client.get("/", headers={"Host": host(doors, mine), "Cookie": own})).status_code == 200
        headers = {**doors.route(mine, 8000), "Cookie": own}
        assert (await client.get("/", headers=headers)).status_code == 403, "not by headers: that host is everybody's"


@pytest.mark.parametrize(
    "sent",
    [
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
        {"Origin": "http://8000-i1234567.localhost"},
        {"Origin": "null"},
    ],
)
async def test_another_sandboxs_page_cannot_use_the_cookie(doors: Doors, sent: dict[str, str]) -> None:
    sandbox = await private(doors)
    async with service(echo) as port, doors.client(key=None) as client:
        doors.ports[8000] = port
        own = {"Host": host(doors, sandbox), "Cookie": await cookie_of(doors, client, sandbox)}
        assert (await client.get("/", headers={**own, **sent})).status_code == 403
        assert (await client.post("/", headers={**own, **sent, "Sec-Fetch-Site": "same-site"})).status_code == 403
        origin = {"Origin": f"http://{own['Host']}", "Sec-Fetch-Site": "same-origin"}
        assert (await client.post("/", headers={**own, **origin})).status_code == 200
        assert (await client.get("/", headers={**own, **NAVIGATE, "Sec-Fetch-Site": "cross-site"})).status_code == 200


async def test_a_websocket_needs_the_origin_of_the_port_itself(doors: Doors) -> None:
    sandbox = await private(doors)
    async with service(echo) as port, doors.client(key=None) as client:
        doors.ports[8000] = port
        own = {"Cookie": await cookie_of(doors, client, sandbox)}
        at = {"host": "127.0.0.1", "port": doors.port, "proxy": None}
        right = {"Origin": f"http://{host(doors, sandbox)}"}
        for origin, is_let_in in (({}, False), ({"Origin": "http://evil.localhost"}, False), (right, True)):
            with pytest.raises(InvalidStatus) as refused:  # what serves there knows no WebSockets
                async with connect(f"ws://{host(doors, sandbox)}/", additional_headers={**own, **origin}, **at):
                    pass
            assert (refused.value.response.status_code != 403) == is_let_in


async def test_ports_that_are_open_need_no_grant_and_cookies_there_stay_away_too(doors: Doors, sandbox: str) -> None:
    async with service(echo) as port, doors.client(key=None) as client, doors.client() as api:
        doors.ports[8000] = port
        made = (await api.post(f"/sandboxes/{sandbox}/ports/8000/grants")).json()
        assert not made["needed"]
        at = {"Host": host(doors, sandbox)}
        answer = await client.get(f"/?sandlot_grant={made['grant']}", headers=at)
        assert answer.status_code == 303 and "set-cookie" not in answer.headers
        assert "cookie" not in seen(await client.get("/", headers={**at, "Cookie": f"{COOKIE}=1.2"}))
        kept = await client.get("/?sandlot_grant=mine", headers=at)
        assert kept.json()["query"] == "sandlot_grant=mine", "a parameter that only looks like ours is the service's"
        for path in ("nothing/ports/8000", f"{sandbox}/ports/0"):
            assert (await api.post(f"/sandboxes/{path}/grants")).status_code in (400, 404)
        assert (await client.post(f"/sandboxes/{sandbox}/ports/8000/grants")).status_code == 401


async def test_grants_and_cookies_end(doors: Doors) -> None:
    now = [1_000_000.0]
    grants = PortGrants(lambda: now[0])
    row = await doors.control.lookup.find(await private(doors))
    assert row is not None
    late = grants.issue(row, 8000)
    now[0] += GRANT_S
    assert not grants.take(late.token, row, 8000)
    cookie = grants.cookie(row, 8000)
    assert PortGrants(lambda: now[0]).admits(row, 8000, [cookie]), "it outlives a restart"
    for wrong in ("", "x", cookie[:-1] + "x", cookie.replace(".", "1.", 1), "9" * 4000, "٣." + cookie):
        assert not grants.admits(row, 8000, [wrong]), wrong
    now[0] += COOKIE_S
    assert not grants.admits(row, 8000, [cookie])


async def test_under_tls_the_cookie_is_secure_and_tied_to_its_host(doors: Doors) -> None:
    row = await doors.control.lookup.find(await private(doors))
    assert row is not None
    grants = PortGrants()
    token = grants.issue(row, 8000).token
    scope = {"type": "http", "method": "GET", "scheme": "https", "raw_path": b"/", "headers": []}
    scope["query_string"] = f"sandlot_grant={token}".encode()
    headers = BrowserEntry(grants).redirect(row, Target(8000, row.id, is_host=True), scope)
    cookie = dict(headers or [])[b"set-cookie"].decode()
    assert cookie.startswith("__Host-sandlot_port=") and cookie.endswith("; Secure") and "HttpOnly" in cookie
