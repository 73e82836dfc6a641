"""The browser tools with a real Chromium."""

from __future__ import annotations

import functools
import shutil
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.tools.conftest import Another, Tools, running

PAGE = """<!doctype html><title>Shop</title><h1>Welcome</h1>
<form onsubmit="said.textContent = 'Hello ' + who.value; document.title = 'Sent'; return false">
<input id=who aria-label=Name value=""><button>Send</button></form><p id=said></p>
<a href="/second.html" target=_blank>Second</a>
<button onclick="setTimeout(() => late.textContent = 'It is here', 300)">Later</button><p id=late></p>
<div style="height: 4000px"></div><p id=bottom>Bottom</p>"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("site")
    (root / "index.html").write_text(PAGE)
    (root / "second.html").write_text("<title>Two</title><p>The second page")
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(root))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browsing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    with running(tmp_path_factory.mktemp("browsing")) as tools:
        yield tools


def ref(snapshot: str, label: str) -> str:
    """What an agent does: find the line that names a thing, and take its ref."""
    line = next(line for line in snapshot.splitlines() if label in line and "[ref=" in line)
    return line.partition("[ref=")[2].partition("]")[0]


async def test_a_page_is_read_filled_in_and_sent(browsing: Tools, site: str) -> None:
    async with browsing.caller() as call:
        page = await call("browser_navigate", url=site)
        assert page.startswith("status 200\nShop\n") and 'heading "Welcome"' in page
        await call("browser_type", target=ref(page, "Name"), text="Ada")
        await call("browser_type", target="#who", text=" L.", append=True)
        page = await call("browser_click", target=ref(page, "Send"))
        assert page.startswith("Sent\n") and "Hello Ada L." in page
        await call("browser_type", target="#who", text="Bob")
        assert "Hello Bob" in await call("browser_press", key="Enter", target="#who")
        await call("browser_click", target="text=Later")
        assert "It is here" in await call("browser_wait", text="It is here", seconds=30)
        assert "Timeout" in await call.failure("browser_wait", text="Nonesuch", seconds=0.5)


async def test_pages_scroll_and_have_their_picture_taken(browsing: Tools, site: str) -> None:
    async with browsing.caller() as call:
        await call("browser_navigate", url=site.removeprefix("http://"))
        assert "from 500 to 1300" in await call("browser_scroll", down=500)
        assert "from 0 to" not in await call("browser_scroll", target="#bottom")
        seen, whole = [(await call.ask("browser_screenshot", full_page=full)).images[0] for full in (False, True)]
        assert seen.startswith(b"\x89PNG") and int.from_bytes(whole[20:24]) > 4000 > int.from_bytes(seen[20:24])


async def test_tabs_are_opened_selected_and_closed(browsing: Tools, site: str) -> None:
    async with browsing.caller() as call:
        await call("browser_navigate", url=site)
        await call("browser_click", target="text=Second")
        assert "The second page" in await call("browser_wait", text="The second page", seconds=30)
        assert "1* Two" in await call("browser_tabs")
        assert "0* Shop" in await call("browser_tabs", action="select", index=0)
        assert "2* Two" in await call("browser_tabs", action="new", url=f"{site}/second.html")
        assert "index must name" in await call.failure("browser_tabs", action="close", index=9)
        for _ in range(3):  # the last one leaves an empty tab
            tabs = await call("browser_tabs", action="close", index=0)
        assert tabs == "0*  about:blank"
        assert "ERR_CONNECTION_REFUSED" in await call.failure("browser_navigate", url="http://127.0.0.1:49151/")


async def test_where_there_is_no_browser_the_tools_say_so(another: Another, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "bash").symlink_to(str(shutil.which("bash")))
    with another(PATH=str(programs)) as tools:
        async with tools.caller() as call:
            assert "has no browser" in await call.failure("browser_navigate", url="http://localhost")
