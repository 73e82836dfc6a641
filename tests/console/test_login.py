"""Logging in and out, one-time links, and requests that are not the console's own."""

from __future__ import annotations

import gzip
from pathlib import Path

import httpx
import pytest
from tests.console.browsers import browser, logged_in
from tests.platform.fakes import ScriptedProvider
from tests.platform.world import ADMIN, Served, scripted, until
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from sandlot.platform.console.attempts import BURST, LoginAttempts
from sandlot.platform.console.bundle import Bundle
from sandlot.platform.console.origins import COOKIE, cookie_of
from sandlot.platform.core.errors import Busy


async def test_a_key_becomes_a_cookie_that_every_route_takes_until_the_browser_logs_out(quick: Served) -> None:
    async with logged_in(quick.url, await quick.key("ada")) as ada:
        me = (await ada.get("/console/me")).json()
        assert me == {"user_id": "ada", "is_admin": False, "scopes": ["read", "write"], "version": "test"}
        assert (await ada.post("/sandboxes/create", json={})).status_code == 201, "a route that is not the console's"
        cookie = next(iter(ada.cookies.jar))
        assert cookie.name == COOKIE and cookie.path == "/" and cookie.has_nonstandard_attr("HttpOnly")
        kept = cookie.value
        assert (await ada.post("/console/logout")).status_code == 204
        assert (await ada.get("/console/me")).status_code == 401
        assert (await ada.get("/console/me", headers={"Cookie": f"{COOKIE}={kept}"})).status_code == 401


async def test_a_wrong_key_and_a_made_up_cookie_open_nothing(quick: Served) -> None:
    async with browser(quick.url) as made:
        answer = await made.post("/console/login", json={"key": "slp_guess"})
        assert answer.status_code == 401 and "set-cookie" not in answer.headers
        assert (await made.get("/console/me", headers={"Cookie": f"{COOKIE}=guess"})).status_code == 401
        assert (await made.get("/console/me")).status_code == 401


async def test_a_revoked_key_logs_its_browsers_out_and_no_others(quick: Served) -> None:
    async with (
        logged_in(quick.url, await quick.key("ada")) as ada,
        logged_in(quick.url, ADMIN) as admin,
    ):
        keys = (await admin.get("/console/api/keys")).json()["keys"]
        assert [key["user_id"] for key in keys] == ["ada"]
        assert (await admin.delete(f"/console/api/keys/{keys[0]['id']}")).status_code == 204
        assert (await ada.get("/console/me")).status_code == 401
        assert (await admin.get("/console/me")).json()["is_admin"]


async def test_a_key_made_in_the_console_gives_nobody_more_than_they_have(quick: Served) -> None:
    async with logged_in(quick.url, await quick.key("ada")) as ada:
        made = await ada.post("/console/api/keys", json={"name": "ci"})
        assert made.status_code == 201 and made.json()["key"]["user_id"] == "ada"
        for body in ({"name": "x", "user_id": "bob"}, {"name": "x", "scopes": ["admin"]}):
            assert (await ada.post("/console/api/keys", json=body)).status_code == 403
    async with logged_in(quick.url, made.json()["secret"]) as again:
        assert (await again.get("/console/me")).json()["user_id"] == "ada"
    async with logged_in(quick.url, await quick.key("bob")) as bob:
        assert (await bob.get("/console/api/keys")).json()["keys"][0]["user_id"] == "bob"
        assert (await bob.delete(f"/console/api/keys/{made.json()['key']['id']}")).status_code == 404


async def test_a_login_link_works_once(quick: Served) -> None:
    async with quick.http(await quick.key("ada")) as api:
        path = (await api.post("/console/links")).json()["path"]
    for expected in (303, 401):
        async with httpx.AsyncClient(base_url=quick.url, trust_env=False) as made:
            answer = await made.get(path)
            assert answer.status_code == expected, answer.text
            if expected == 303:
                assert answer.headers["location"] == "/console/" and path not in answer.text
                assert (await made.get("/console/me")).json()["user_id"] == "ada"


async def test_a_login_link_that_another_page_opens_asks_first(quick: Served) -> None:
    async with quick.http() as api:
        path = (await api.post("/console/links")).json()["path"]
    async with httpx.AsyncClient(base_url=quick.url, trust_env=False) as made:
        asked = await made.get(path, headers={"Sec-Fetch-Site": "cross-site"})
        assert asked.status_code == 200 and "<form" in asked.text and "set-cookie" not in asked.headers
        token = path.partition("link=")[2]
        forged = {"Sec-Fetch-Site": "same-site", "Origin": "http://8000-i1.localhost"}
        confirm = "/console/login/confirm"
        assert (await made.post(confirm, data={"link": token}, headers=forged)).status_code == 403
        own = {"Sec-Fetch-Site": "same-origin", "Origin": quick.url}
        assert (await made.post(confirm, data={"link": token}, headers=own)).status_code == 303


async def test_a_cookie_alone_makes_no_login_links(quick: Served) -> None:
    async with logged_in(quick.url, ADMIN) as admin:
        assert (await admin.post("/console/links")).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://8000-i1234567.localhost"},
        {"Origin": "null"},
        {"Origin": "", "Sec-Fetch-Site": ""},
    ],
)
async def test_a_cookie_does_not_count_in_requests_of_other_pages(quick: Served, headers: dict[str, str]) -> None:
    async with logged_in(quick.url, await quick.key("ada")) as ada:
        own = {**dict(ada.headers), **{name.lower(): value for name, value in headers.items()}}
        request = ada.build_request("POST", "/sandboxes/create", json={})
        for name in ("origin", "sec-fetch-site"):
            del request.headers[name]
            if own[name]:
                request.headers[name] = own[name]
        answer = await ada.send(request)
        assert answer.status_code == 403, answer.text
        assert (await ada.get("/sandboxes/list")).json()["sandboxes"] == [], "nothing was carried out"
        with_key = {**headers, "X-API-KEY": await quick.key("ada")}
        assert (await ada.get("/console/me", headers=with_key)).status_code == 200, "a key is no cookie"


async def test_a_websocket_with_a_cookie_needs_the_consoles_origin(quick: Served) -> None:
    async with logged_in(quick.url, await quick.key("ada")) as ada:
        made = (await ada.post("/sandboxes/create", json={})).json()
        cookie = next(iter(ada.cookies.jar))
        address = f"{quick.url.replace('http', 'ws', 1)}/sandboxes/{made['sandbox_id']}/terminal"
        sent = {"Cookie": f"{cookie.name}={cookie.value}"}
        for origin in ({}, {"Origin": "http://8000-i1234567.localhost"}):
            with pytest.raises(InvalidStatus) as refused:
                async with connect(address, additional_headers={**sent, **origin}, proxy=None):
                    pass
            assert refused.value.response.status_code == 403
        async with connect(address, additional_headers={**sent, "Origin": quick.url}, proxy=None) as socket:
            await socket.send(b"exit 0\n")


@pytest.mark.parametrize("host", ["evil.example", "8000-i1234567.localhost", "localhost.evil.example"])
async def test_at_a_foreign_host_name_there_is_no_console(quick: Served, host: str) -> None:
    async with logged_in(quick.url, ADMIN) as admin:
        for path in ("/console/", "/console/login?link=abc", "/console/me"):
            answer = await admin.get(path, headers={"Host": host})
            assert answer.status_code in (403, 404), path
        key = {"key": await quick.key("ada")}
        assert (await admin.post("/console/login", json=key, headers={"Host": host})).status_code == 403


async def test_a_host_name_of_the_configuration_has_the_console(tmp_path: Path) -> None:
    config = scripted(console_hosts=("sandlot.example",))
    async with Served(tmp_path, config, {"scripted": ScriptedProvider()}) as served, browser(served.url) as made:
        assert (await made.get("/console/", headers={"Host": "sandlot.example"})).status_code == 200


async def test_who_guesses_keys_has_to_wait_and_who_has_one_does_not(quick: Served) -> None:
    async with browser(quick.url) as made:
        codes = [(await made.post("/console/login", json={"key": f"slp_{n}"})).status_code for n in range(BURST + 2)]
        assert codes[:BURST] == [401] * BURST and codes[-1] == 429
    now = [0.0]
    attempts = LoginAttempts(lambda: now[0])
    for _ in range(BURST):
        attempts.check("10.0.0.1")
        attempts.failed("10.0.0.1")
    with pytest.raises(Busy):
        attempts.check("10.0.0.1")
    attempts.check("10.0.0.2")
    now[0] += 5
    attempts.check("10.0.0.1")


async def test_a_session_outlives_a_restart(quick: Served) -> None:
    async with logged_in(quick.url, ADMIN) as admin:
        await quick.restart()

        async def answers() -> bool:
            try:
                return (await admin.get("/console/me")).status_code == 200
            except httpx.TransportError:
                return False

        await until(answers, what="the session after a restart")


def test_two_cookies_of_one_name_are_none() -> None:
    assert cookie_of([(b"cookie", b"a=1; sandlot_console=one")]) == "one"
    assert cookie_of([(b"cookie", b"sandlot_console=one; sandlot_console=two")]) is None
    assert cookie_of([(b"cookie", b"x=1")]) is None


async def test_pages_are_kept_in_and_assets_are_kept_long(quick: Served) -> None:
    async with browser(quick.url) as made:
        home = await made.get("/", headers={"Accept": "text/html"})
        assert home.status_code == 307 and home.headers["location"] == "/console/"
        for path in ("/console", "/console/", "/console/board", "/console/tasks/abc", "/console/login"):
            page = await made.get(path)
            assert page.status_code == 200 and page.headers["content-type"].startswith("text/html"), path
            policy = page.headers["content-security-policy"]
            assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy
            assert page.headers["x-content-type-options"] == "nosniff"
            assert page.headers["cache-control"] == "no-cache"
        for path in ("/console/assets/missing.js", "/console/api/missing"):
            assert (await made.get(path, headers={"X-API-KEY": ADMIN})).status_code == 404
        assert (await made.get("/console/%2e%2e/%2e%2e/settings.py")).headers["content-type"].startswith("text/html")


def test_the_bundle_gives_its_own_files_only(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("no")
    root = tmp_path / "static"
    (root / "assets").mkdir(parents=True)
    (root / "index.html").write_text("<p>page</p>")
    (root / "assets" / "a-1.js").write_text("1")
    (root / "assets" / "a-1.js.br").write_bytes(b"compressed")
    (root / "assets" / "b-1.css").write_text("b")
    bundle = Bundle(root)
    plain, small = bundle.file("assets/a-1.js"), bundle.file("assets/a-1.js", {"br", "gzip"})
    assert plain is not None and (plain.content, plain.media_type, plain.is_hashed) == (b"1", "text/javascript", True)
    assert small is not None and (small.content, small.encoding) == (b"compressed", "br")
    zipped = bundle.file("assets/b-1.css", {"gzip"})
    assert zipped is not None and (gzip.decompress(zipped.content), zipped.encoding) == (b"b", "gzip")
    for name in ("../secret.txt", "assets/../../secret.txt", "assets/a-1.js.br", str(tmp_path / "secret.txt"), ""):
        assert bundle.file(name) is None, name
    assert bundle.page().content == b"<p>page</p>"
    assert b"not in this checkout" in Bundle(tmp_path / "nowhere").page().content
