"""Browsers without a browser: what is decided, signed, sealed, logged and compared, and the routes on scripted sandboxes."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.platform.fakes import ScriptedProvider
from tests.platform.world import Served, load_text, scripted

from sandlot.platform.browsers.interception import decide
from sandlot.platform.browsers.keeping import drift
from sandlot.platform.browsers.live_view import parsed_input
from sandlot.platform.browsers.log_book import LogBook, entries
from sandlot.platform.browsers.observer import is_allowed
from sandlot.platform.browsers.proxies import credentials, pac_option
from sandlot.platform.browsers.recording import MAX_FRAME, Recording, frames, recorded_pages
from sandlot.platform.browsers.signing import Signing
from sandlot.platform.browsers.vault import PIECE, Vault
from sandlot.platform.browsers.webdriver import with_debugger
from sandlot.platform.core.browsers import Browser, BrowserContext, BrowserStatus, ProxyRule
from sandlot.platform.core.errors import (
    ConfigurationError,
    Conflict,
    InvalidRequest,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from sandlot.platform.core.model import ProviderSandbox
from sandlot.platform.store import Database, SqlBrowserContexts, SqlBrowsers

NOW = datetime(2026, 11, 18, tzinfo=UTC)


def browser(id: str = "brw_1", **changes: object) -> Browser:
    known: dict[str, object] = {
        "id": id,
        "user_id": "ada",
        "status": BrowserStatus.RUNNING,
        "provider": "local",
        "timeout_s": 60,
        "keep_alive": False,
        "created_at": NOW,
        "updated_at": NOW,
        "expires_at": NOW + timedelta(seconds=60),
        "provider_sandbox_id": f"sandbox-of-{id}",
    }
    return Browser(**{**known, **changes})  # type: ignore[arg-type]


async def pieces(*content: bytes) -> AsyncIterator[bytes]:
    for piece in content:
        yield piece


def test_a_goodbye_is_answered_and_not_passed_on() -> None:
    said = decide('{"id": 7, "method": "Browser.close", "sessionId": "S"}')
    assert said.leaves and said.forward is None
    assert json.loads(said.answer or "") == {"id": 7, "sessionId": "S", "result": {}}


def test_downloads_go_to_one_place_and_the_rest_is_passed_on_as_it_is() -> None:
    asked = {"id": 1, "method": "Browser.setDownloadBehavior", "params": {"behavior": "allow", "downloadPath": "/etc"}}
    forward = json.loads(decide(json.dumps(asked)).forward or "")
    assert forward["params"] == {"behavior": "allow", "downloadPath": "/home/user/downloads"}
    for text in (
        '{"id":1,"method":"Page.navigate"}',
        '"Browser.',
        "[" * 50_000 + '"Browser.close"',
        '["Browser.close"]',
    ):
        assert decide(text).forward == text


def test_keys_of_one_browser_do_not_open_another_and_views_end() -> None:
    time = NOW

    def clock() -> datetime:
        return time

    signing = Signing("secret", clock)
    key = signing.signing_key("brw_1")
    assert signing.driven(key) == "brw_1"
    view = signing.view_token("brw_1", "first", 60)
    assert signing.viewed(view) == ("brw_1", "first")
    for wrong in (key.replace("brw_1", "brw_2"), "brw_1.", "", view, Signing("other", clock).signing_key("brw_1")):
        with pytest.raises(Unauthorized):
            signing.driven(wrong)
    for wrong in (key, view.replace("first", "other"), "brw_1.first.9999999999.x", "a.b.c.ä"):
        with pytest.raises(Unauthorized):
            signing.viewed(wrong)
    time = NOW + timedelta(seconds=61)
    with pytest.raises(Unauthorized, match="too old"):
        signing.viewed(view)


async def test_a_sealed_file_is_not_in_clear_and_cannot_be_cut_or_swapped(tmp_path: Path) -> None:
    vault, content = Vault(tmp_path / "vault"), b"a cookie " * (PIECE // 4)
    name, key = await vault.put(pieces(content[:10], content[10:]), len(content), "it")
    path = tmp_path / "vault" / name
    assert b"".join([piece async for piece in vault.get(name, key)]) == content
    stored = path.read_bytes()
    assert b"a cookie" not in stored and path.stat().st_mode & 0o777 == 0o600
    for changed in (stored[: PIECE + 16], stored[:-1], b"", stored[PIECE + 16 :] + stored[: PIECE + 16]):
        path.write_bytes(changed)
        if changed:
            with pytest.raises(Unavailable):
                _ = [piece async for piece in vault.get(name, key)]
    with pytest.raises(TooLarge):
        await vault.put(pieces(b"xx"), 1, "it")
    assert vault.names() == {name}
    with pytest.raises(Unavailable):
        _ = [piece async for piece in vault.get("../keys/default", key)]


def test_proxies_become_a_script_and_their_passwords_are_not_in_it() -> None:
    rules = (
        ProxyRule(server="http://p.example:3128", username="ada", password="hidden", pattern=r"\.shop$"),
        ProxyRule(server=None, pattern="^local"),
        ProxyRule(server="socks5://[::1]:1080"),
    )
    script = base64.b64decode(pac_option(rules).partition("base64,")[2]).decode()
    assert '"PROXY p.example:3128"' in script and '"SOCKS5 [::1]:1080"' in script and "hidden" not in script
    assert credentials(rules) == {"p.example:3128": ("ada", "hidden")}
    for server in ("ftp://x", "http://a b", "http://x:99999", ""):
        with pytest.raises(InvalidRequest):
            pac_option([ProxyRule(server=server)])
    with pytest.raises(InvalidRequest):
        pac_option([ProxyRule(server="http://x", pattern="(")])


def test_a_domain_stands_for_all_below_it_and_for_nothing_else() -> None:
    domains = ("example.com", "*.shop.test")
    assert is_allowed("https://example.com/a", domains) and is_allowed("https://a.b.Example.com./", domains)
    assert is_allowed("https://x.shop.test", domains) and is_allowed("https://anything", ())
    for url in ("https://notexample.com", "https://example.com.evil", "https://evil/example.com", "http://[", "about:"):
        assert not is_allowed(url, domains), url


def test_a_viewer_can_send_input_and_nothing_else() -> None:
    method, params = parsed_input('{"type": "mousePressed", "x": 1.5, "y": 2, "button": "left", "clickCount": 1}')
    assert (method, params["x"], params["button"]) == ("Input.dispatchMouseEvent", 1.5, "left")
    assert parsed_input('{"type": "keyDown", "key": "a", "evil": 1}') == (
        "Input.dispatchKeyEvent",
        {"type": "keyDown", "key": "a"},
    )
    for text in (
        "",
        "[]",
        '{"type": "navigate"}',
        '{"type": "mouseMoved", "x": 1e99}',
        '{"type": "mouseMoved", "x": true}',
    ):
        with pytest.raises(InvalidRequest):
            parsed_input(text)


def test_selenium_gets_the_browser_that_runs() -> None:
    asked = {
        "capabilities": {"alwaysMatch": {"goog:chromeOptions": {"binary": "/bin/sh"}, "pageLoadStrategy": "eager"}}
    }
    found = json.loads(with_debugger(json.dumps(asked).encode()))["capabilities"]["alwaysMatch"]
    assert found["goog:chromeOptions"] == {"debuggerAddress": "127.0.0.1:9222"} and found["pageLoadStrategy"] == "eager"
    for body in (b"", b"[]", b'{"capabilities": []}', b'{"capabilities": {"firstMatch": 7}}'):
        with pytest.raises(InvalidRequest):
            with_debugger(body)


def test_a_log_has_commands_with_their_answers_and_ends_where_it_is_full(tmp_path: Path) -> None:
    log = LogBook(tmp_path / "log", lambda: NOW)
    log.asked(1, '{"id": 5, "method": "Page.navigate", "params": {"url": "http://a"}, "sessionId": "S"}')
    log.answered(2, '{"id": 5, "result": {"of": "another client"}}')
    log.answered(1, '{"id": 5, "result": {"frameId": "F"}}')
    log.answered(1, '{"method": "Page.frameNavigated", "params": {"frameId": "F"}, "sessionId": "S"}')
    for noise in (
        "{",
        "[]",
        '{"method": 7}',
        '{"method": "Page.screencastFrame"}',
        '{"method": "CSS.x"}',
        "[" * 60_000,
    ):
        log.answered(1, noise)
    log.close()
    found = list(entries(tmp_path / "log"))
    assert [entry["method"] for entry in found] == ["Page.navigate", "Page.frameNavigated"]
    assert found[0]["response"]["result"] == {"frameId": "F"} and found[1]["frameId"] == "F"
    assert list(entries(tmp_path / "none")) == []


def test_only_pictures_are_recorded(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    picture = b"\xff\xd8\xff" + b"x" * 10
    for page, data in (
        ("A", base64.b64encode(picture).decode()),
        ("../A", base64.b64encode(picture).decode()),
        ("A", base64.b64encode(b"<html>").decode()),
        ("A", "not base64"),
        ("A", "A" * (2 * MAX_FRAME)),
        ("A", base64.b64encode(picture + b"2").decode()),
    ):
        recording.add(page, data)
    recording.close()
    assert [(page.id, page.frames) for page in recorded_pages(tmp_path)] == [("A", 2)]
    assert [content for content, _ in frames(tmp_path, "A")] == [picture, picture + b"2"]


def test_drift_finds_strays_and_lost_browsers_and_leaves_others_alone() -> None:
    def box(id: str, session: str) -> ProviderSandbox:
        return ProviderSandbox(id=id, session=session, is_paused=False)

    starting = browser("brw_2", status=BrowserStatus.STARTING, provider_sandbox_id=None)
    elsewhere = browser("brw_3", provider="away")
    found = {"local": [box("a", "brw_2"), box("b", "brw_gone"), box("c", "sbx_other"), box("d", "film-1")]}
    strays, missing = drift([browser("brw_1"), starting, elsewhere], found)
    assert [sandbox.id for _, sandbox in strays] == ["b"] and [row.id for row in missing] == ["brw_1"]


async def test_browsers_and_contexts_are_stored(tmp_path: Path) -> None:
    database = Database.sqlite(tmp_path / "platform.db")
    try:
        await database.migrate()
        store, contexts = SqlBrowsers(database), SqlBrowserContexts(database)
        made = browser(metadata={"a": [1]}, started_at=NOW)
        await store.add(made)
        assert await store.get("brw_1") == made
        changed = browser(
            metadata={"a": [1]}, status=BrowserStatus.COMPLETED, started_at=NOW, ended_at=NOW + timedelta(minutes=3)
        )
        await store.swap(made, changed)
        with pytest.raises(Conflict):
            await store.swap(made, changed)
        assert await store.minutes("ada") == 3 and await store.minutes("bob") == 0
        assert [one.id for one in await store.query(user_id="ada", statuses={BrowserStatus.COMPLETED})] == ["brw_1"]
        assert list(await store.purge(NOW + timedelta(hours=1))) == ["brw_1"] and await store.get("brw_1") is None
        context = BrowserContext(id="ctx_1", user_id="ada", created_at=NOW, updated_at=NOW, name="Work", key="00ff")
        await contexts.add(context)
        assert await contexts.by_name("ada", "wORK") == context and await contexts.by_name("bob", "Work") is None
        assert b"00ff" not in (tmp_path / "platform.db").read_bytes()
        await contexts.remove("ctx_1")
        assert await contexts.get("ctx_1") is None
    finally:
        await database.close()


def test_the_configuration_of_browsers_is_checked() -> None:
    text = '[providers.a]\nkind = "local"\n[browsers]\nrunning = 3\n[browsers.proxy]\nserver = "http://p:1"\nusername = "u"\npassword_env = "P"\n'
    found = load_text(text, {"P": "hidden"}, has_engine=True).browsers
    assert found.running == 3 and found.proxy is not None and found.proxy.password == "hidden"
    assert "hidden" not in repr(found)
    for wrong, words in (
        ("provider = 'b'", "no such provider"),
        ("timeout = 5", "60"),
        ("runing = 1", "did you mean 'running'"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            load_text(f'[providers.a]\nkind = "local"\n[browsers]\n{wrong}\n', has_engine=True)


async def test_routes_of_browsers_refuse_what_is_not_the_callers(tmp_path: Path) -> None:
    async with Served(tmp_path, scripted(), {"scripted": ScriptedProvider()}) as served:
        ada, bob = await served.key("ada"), await served.key("bob")
        async with served.http(ada) as one, served.http(bob) as other:
            base = "/browserbase/v1"
            made = (await one.post(f"{base}/contexts", json={"name": "work"})).json()
            assert (await one.post(f"{base}/contexts", json={"name": "WORK"})).status_code == 409
            assert (await other.post(f"{base}/contexts", json={"name": "work"})).status_code == 200
            assert (await one.get(f"{base}/contexts/{made['id']}")).json()["name"] == "work"
            assert (await other.get(f"{base}/contexts/{made['id']}")).status_code == 404
            refused = await other.post(f"{base}/sessions", json={"browserSettings": {"context": {"id": made["id"]}}})
            assert refused.status_code == 404
            assert (await one.post(f"{base}/sessions", json={"projectId": "bob"})).status_code == 403
            assert (await one.post(f"{base}/sessions", json={"proxies": True})).status_code == 400
            assert (await one.get(f"{base}/projects")).json()[0]["id"] == "ada"
            assert (await one.get(f"{base}/projects/bob/usage")).status_code == 403
            assert (await one.post(f"{base}/extensions", files={"file": ("x.zip", b"no zip")})).status_code == 400
            kept = await one.post(f"{base}/extensions", files={"file": ("x.zip", b"PK\x03\x04rest")})
            assert (await other.delete(f"{base}/extensions/{kept.json()['id']}")).status_code == 404
            assert (await one.delete(f"{base}/extensions/{kept.json()['id']}")).status_code == 204
            assert (await one.get(f"{base}/sessions/brw_none")).status_code == 404
            assert (await one.get(f"{base}/webhooks")).status_code == 501
        async with served.http("no key") as nobody:
            assert (await nobody.get(f"{base}/projects")).status_code == 401
            for path in ("live?token=x", "film/film.mp4?token=x", "webdriver/brw_1.x/status"):
                assert (await nobody.get(f"/browserbase/{path}")).status_code == 401, path
