"""What people do with Browserbase's Python package, Playwright and Selenium, as scenarios that end with an assertion or well."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import browserbase
import httpx
import site_inside as site
from browserbase import AsyncBrowserbase, Browserbase
from playwright.async_api import async_playwright
from playwright.sync_api import Browser, Error, Page, sync_playwright
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.remote_connection import RemoteConnection

bb = Browserbase()  # by BROWSERBASE_API_KEY and BROWSERBASE_BASE_URL


@contextlib.contextmanager
def connected(session: Any) -> Iterator[tuple[Browser, Page]]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(session.connect_url)
        yield browser, browser.contexts[0].pages[0]


def until(true: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.1)
    return found


def ended(id: str, status: str = "COMPLETED") -> Any:
    return until(lambda: (found := bb.sessions.retrieve(id)).status == status and found)


def basic() -> None:
    """The life of a session: create, connect, a page, the end with the client."""
    project = bb.projects.list()[0].id
    session = bb.sessions.create(project_id=project, user_metadata={"team": "shop", "number": 7})
    assert session.status == "RUNNING" and session.signing_key and session.project_id == project
    site.serve(session.id)
    with connected(session) as (browser, page):
        page.goto(site.ADDRESS)
        page.get_by_label("Name").fill("Ada")
        page.get_by_role("button", name="Greet").click()
        assert page.locator("#said").inner_text() == "Hello Ada"
        assert len(page.screenshot()) > 1000
        second = browser.contexts[0].new_page()
        second.goto(f"{site.ADDRESS}/report.txt")
        assert "all is well" in second.content()
        live = bb.sessions.debug(session.id)
        assert {one.url for one in live.pages} == {f"{site.ADDRESS}/", f"{site.ADDRESS}/report.txt"}
        found = bb.sessions.list(q="user_metadata['team']:'shop'", status="RUNNING")
        assert [one.id for one in found] == [session.id] and found[0].user_metadata == {"team": "shop", "number": 7}
        browser.close()
    assert ended(session.id).ended_at is not None
    said = bb.sessions.logs.list(session.id)
    assert {"Page.navigate", "Page.frameNavigated"} <= {entry.method for entry in said}
    assert all(entry.session_id == session.id for entry in said)
    assert bb.projects.usage(project).browser_minutes >= 0 and bb.projects.retrieve(project).concurrency > 0


def keep_alive() -> None:
    """A session that is kept goes on without clients, with its pages, until it is released."""
    session = bb.sessions.create(keep_alive=True, browser_settings={"viewport": {"width": 801, "height": 602}})
    site.serve(session.id)
    with connected(session) as (browser, page):
        page.goto(site.ADDRESS)
        assert page.evaluate("[innerWidth, innerHeight]") == [801, 602]
        browser.close()
    time.sleep(1)
    with connected(bb.sessions.retrieve(session.id)) as (browser, page):
        assert page.title() == "Shop"
        assert bb.sessions.update(session.id, status="REQUEST_RELEASE").status == "COMPLETED"
    try:
        with connected(session):
            raise AssertionError("a session that has ended was connected to")
    except Error as error:
        assert "409" in str(error), error


def contexts() -> None:
    """Profiles persist if they are told to, are whole, and are no one else's."""
    context = bb.contexts.create(name=f"shopper-{time.time_ns()}")
    cookie = {"name": "cart", "value": "3", "url": site.ADDRESS, "expires": time.time() + 3600}

    def visit(settings: dict[str, Any], change: bool) -> tuple[str, str]:
        session = bb.sessions.create(browser_settings=settings)
        site.serve(session.id)
        with connected(session) as (browser, page):
            page.goto(site.ADDRESS)
            found = page.evaluate("[document.cookie, localStorage.getItem('seen') || '']")
            if change:
                browser.contexts[0].add_cookies([cookie])  # type: ignore[list-item]
                page.evaluate("localStorage.setItem('seen', 'yes')")
                page.reload()
            browser.close()
        ended(session.id)
        return found[0], found[1]

    kept = {"context": {"id": context.id, "persist": True}}
    assert visit(kept, True) == ("", "")
    assert visit({"context": {"id": context.id}}, False) == ("cart=3", "yes"), visit(
        {"context": {"id": context.id}}, False
    )
    assert visit({}, False) == ("", "")  # another session sees nothing of it
    assert visit({"context": {"id": context.id}}, False) == ("cart=3", "yes")
    assert bb.contexts.retrieve(context.id).id == context.id
    bb.contexts.delete(context.id)
    for refused in (lambda: bb.contexts.retrieve(context.id), lambda: bb.sessions.create(browser_settings=kept)):  # type: ignore[arg-type]
        try:
            refused()
            raise AssertionError("a context that was deleted is still there")
        except browserbase.NotFoundError:
            pass


def files() -> None:
    """Downloads come as a zip, before and after the end; uploads can be given to pages."""
    session = bb.sessions.create()
    site.serve(session.id)
    answer = bb.sessions.uploads.create(session.id, file=("note.txt", b"twelve bytes"))
    assert answer.message
    with connected(session) as (browser, page):
        page.goto(site.ADDRESS)
        cdp = browser.new_browser_cdp_session()
        cdp.send(
            "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": "downloads", "eventsEnabled": True}
        )
        with page.expect_download() as downloaded:
            page.click("#file")
        assert downloaded.value.failure() is None
        names = until(lambda: _zip_names(session.id))
        assert len(names) == 1 and re.fullmatch(r"report-\d{13}\.txt", names[0]), names
        page.set_input_files("#upload", files=[{"name": "local.txt", "mimeType": "text/plain", "buffer": b"hello"}])
        assert page.locator("#said").inner_text() == "local.txt 5"
        inside = browser.contexts[0].new_cdp_session(page)
        node = inside.send(
            "DOM.querySelector", {"nodeId": inside.send("DOM.getDocument")["root"]["nodeId"], "selector": "#upload"}
        )
        inside.send("DOM.setFileInputFiles", {"files": ["/tmp/.uploads/note.txt"], "nodeId": node["nodeId"]})
        until(lambda: page.locator("#said").inner_text() == "note.txt 12")
        browser.close()
    ended(session.id)
    with zipfile.ZipFile(io.BytesIO(bb.sessions.downloads.list(session.id).read())) as packed:
        assert packed.read(packed.namelist()[0]) == b"all is well"


def _zip_names(id: str) -> list[str]:
    try:
        content = bb.sessions.downloads.list(id).read()
    except browserbase.NotFoundError:
        return []
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        return packed.namelist()


def limits() -> None:
    """Domains that are not allowed are not opened; what cannot be had is refused with a sentence."""
    session = bb.sessions.create(browser_settings={"allowedDomains": ["localhost"]})  # type: ignore[typeddict-unknown-key]
    site.serve(session.id)
    with connected(session) as (browser, page):
        page.goto("http://localhost:8000/")
        for opened in (page, browser.contexts[0].new_page()):
            try:
                opened.goto(site.ADDRESS)
                raise AssertionError("a page outside of the allowed domains was opened")
            except Error as error:
                assert "ERR_BLOCKED_BY_CLIENT" in str(error), error
        browser.close()
    for asked, words in (
        ({"proxies": True}, "[browsers.proxy]"),
        ({"browser_settings": {"advancedStealth": True}}, "advancedStealth"),
        ({"browser_settings": {"os": "mac"}}, "Linux"),
        ({"api_timeout": 10}, "60 to 21600"),
        ({"proxies": [{"type": "external", "server": "no address"}]}, "http://proxy.example.com"),
    ):
        try:
            bb.sessions.create(**asked)  # type: ignore[arg-type]
            raise AssertionError(f"{asked} was not refused")
        except browserbase.BadRequestError as error:
            assert words in str(error), error
    try:
        httpx.get(
            f"{bb.base_url}v1/webhooks", headers={"X-BB-API-Key": str(bb.api_key)}, trust_env=False
        ).raise_for_status()
    except httpx.HTTPStatusError as error:
        assert error.response.status_code == 501, error


def proxies() -> None:
    """Requests go through the proxy that is named, with its password, and only those it is meant for."""
    proxy = """
import base64, http.server, sys
class Proxy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        right = "Basic " + base64.b64encode(b"ada:secret").decode()
        if self.headers.get("Proxy-Authorization") != right:
            self.send_response(407); self.send_header("Proxy-Authenticate", 'Basic realm="p"')
            self.send_header("Content-Length", "0"); self.end_headers(); return
        body = b"<title>proxied</title>" + self.path.encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", 8111), Proxy).serve_forever()
"""
    rule = {"type": "external", "server": "http://127.0.0.1:8111", "username": "ada", "password": "secret"}
    session = bb.sessions.create(proxies=[{**rule, "domainPattern": r"\.example$"}])  # type: ignore[list-item]
    box = site.serve(session.id)
    box.files.write("/home/user/proxy.py", proxy)
    box.commands.run("exec python3 /home/user/proxy.py", background=True, timeout=0)
    box.commands.run(
        "for i in $(seq 100); do curl -s -o /dev/null http://127.0.0.1:8111/ && exit 0; sleep 0.05; done; exit 1"
    )
    with connected(session) as (browser, page):
        page.goto("http://shop.example/deals")
        assert page.title() == "proxied" and "http://shop.example/deals" in page.content()
        page.goto(site.ADDRESS)
        assert page.title() == "Shop"
        browser.close()


def extensions() -> None:
    """An extension that was uploaded runs in the browser."""
    packed = io.BytesIO()
    manifest = {
        "manifest_version": 3,
        "name": "Painter",
        "version": "1.0",
        "background": {"service_worker": "worker.js"},
        "content_scripts": [{"matches": ["<all_urls>"], "js": ["paint.js"]}],
    }
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("painter/manifest.json", json.dumps(manifest))
        archive.writestr("painter/worker.js", "self.answer = 42;")
        archive.writestr("painter/paint.js", "document.documentElement.dataset.painted = 'yes';")
    made = bb.extensions.create(file=("painter.zip", packed.getvalue()))
    assert bb.extensions.retrieve(made.id).file_name == "painter.zip"
    session = bb.sessions.create(extension_id=made.id)
    site.serve(session.id)
    with connected(session) as (browser, page):
        page.goto(site.ADDRESS)
        until(lambda: page.evaluate("document.documentElement.dataset.painted") == "yes")
        targets = browser.new_browser_cdp_session().send("Target.getTargets")["targetInfos"]
        assert any(one["type"] == "service_worker" and one["url"].startswith("chrome-extension:") for one in targets), (
            targets
        )
        browser.close()
    bb.extensions.delete(made.id)


def live() -> None:
    """A person looks at a page in a browser of their own, and types into it."""
    session = bb.sessions.create(keep_alive=True)
    site.serve(session.id)
    with connected(session) as (_, page):
        page.goto(site.ADDRESS)
        address = bb.sessions.debug(session.id).debugger_url
        _look(address, page)
        assert httpx.get(address[:-3], trust_env=False).status_code == 401
    bb.sessions.update(session.id, status="REQUEST_RELEASE")


def _look(address: str, page: Page) -> None:
    box = page.get_by_label("Name").bounding_box()
    assert box is not None
    context = page.context.browser.browser_type.launch(executable_path=os.environ["CHROMIUM"], args=["--no-sandbox"])  # type: ignore[union-attr]
    viewer = context.new_page()
    problems: list[str] = []
    viewer.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    viewer.goto(address)
    viewer.wait_for_function("Number(document.querySelector('canvas').dataset.frames) > 0")
    scale = viewer.evaluate("(c => c.getBoundingClientRect().width / c.width)(document.querySelector('canvas'))")
    place = viewer.locator("canvas").bounding_box()
    assert place is not None
    viewer.mouse.click(place["x"] + (box["x"] + 10) * scale, place["y"] + (box["y"] + 8) * scale)
    viewer.keyboard.type("Grace")
    until(lambda: page.get_by_label("Name").input_value() == "Grace")
    assert not problems, problems
    context.close()


def films() -> None:
    """A recorded session becomes an MP4 and an HLS playlist."""
    session = bb.sessions.create(browser_settings={"recordSession": True})
    site.serve(session.id)
    with connected(session) as (browser, page):
        page.goto(site.ADDRESS)
        for number in range(8):
            page.evaluate(f"document.body.style.background = 'hsl({number * 40}, 80%, 60%)'")
            time.sleep(0.3)
        browser.close()
    ended(session.id)
    pages = bb.sessions.replays.retrieve(session.id).pages
    assert len(pages) == 1 and pages[0].end_time_ms > pages[0].start_time_ms
    bb.sessions.recording.downloads.create(session.id)
    made = until(
        lambda: (one := bb.sessions.recording.downloads.list(session.id).downloads[0]).status != "PENDING" and one, 120
    )
    assert made.status == "COMPLETED", made
    film = httpx.get(made.download_url, trust_env=False)
    assert film.content[4:8] == b"ftyp" and len(film.content) > 2000
    playlist = httpx.get(
        f"{bb.base_url}v1/sessions/{session.id}/replays/{pages[0].page_id}",
        headers={"X-BB-API-Key": str(bb.api_key)},
        trust_env=False,
    ).text
    segment = next(line for line in playlist.splitlines() if line.startswith("http"))
    assert playlist.startswith("#EXTM3U") and httpx.get(segment, trust_env=False).content[:1] == b"G"
    assert bb.sessions.recording.retrieve(session.id) == []


class SigningConnection(RemoteConnection):
    """As Browserbase's documents have it: the key goes in a header."""

    signing_key = ""

    def get_remote_connection_headers(self, parsed_url: Any, keep_alive: bool = False) -> dict[str, str]:  # type: ignore[override]
        return {**super().get_remote_connection_headers(parsed_url, keep_alive), "x-bb-signing-key": self.signing_key}


def selenium() -> None:
    """Selenium drives the same browser, and ends it when it quits."""
    session = bb.sessions.create()
    site.serve(session.id)
    connection = SigningConnection(session.selenium_remote_url)
    connection.signing_key = session.signing_key
    driver = webdriver.Remote(connection, options=webdriver.ChromeOptions())
    driver.get(site.ADDRESS)
    driver.find_element(By.ID, "who").send_keys("Alan")
    driver.find_element(By.TAG_NAME, "button").click()
    assert driver.find_element(By.ID, "said").text == "Hello Alan" and driver.title == "Shop"
    driver.quit()
    ended(session.id)


def alone() -> None:
    """No session sees anything of another: profile, pages, loopback."""
    first, second = bb.sessions.create(), bb.sessions.create()
    site.serve(first.id)
    with connected(first) as (browser, page):
        page.goto(site.ADDRESS)
        browser.contexts[0].add_cookies([{"name": "who", "value": "first", "url": site.ADDRESS}])
        other = browser.browser_type.connect_over_cdp(second.connect_url)
        assert other.contexts[0].cookies() == [] and [one.url for one in other.contexts[0].pages] == ["about:blank"]
        try:
            other.contexts[0].pages[0].goto(site.ADDRESS)
            raise AssertionError("one session's loopback is another's")
        except Error as error:
            assert "ERR_CONNECTION_REFUSED" in str(error), error
        other.close()
        browser.close()


def many() -> None:
    """Many sessions at once, each with a page."""
    count = int(os.environ.get("MANY", "20"))
    together = asyncio.Barrier(count)

    async def one(client: AsyncBrowserbase, playwright: Any, number: int) -> str:
        session = await client.sessions.create(user_metadata={"number": str(number)})
        browser = await playwright.chromium.connect_over_cdp(session.connect_url, timeout=120_000)
        page = browser.contexts[0].pages[0]
        await page.goto(f"data:text/html,<title>{number}</title>")
        await together.wait()
        assert await page.title() == str(number)
        await browser.close()
        return session.id

    async def run() -> list[str]:
        async with AsyncBrowserbase(max_retries=5, timeout=180) as client, async_playwright() as playwright:
            return await asyncio.gather(*(one(client, playwright, number) for number in range(count)))

    ids = asyncio.run(run())
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ended, ids))


def churn() -> None:
    """Sessions are created and released, and nothing of them is left."""
    count = int(os.environ.get("CHURN", "200"))

    def one(number: int) -> None:
        session = bb.sessions.create(keep_alive=number % 2 == 0)
        assert bb.sessions.update(session.id, status="REQUEST_RELEASE").status == "COMPLETED"

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(count)))
    assert bb.sessions.list(status="RUNNING") == []


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("well")
