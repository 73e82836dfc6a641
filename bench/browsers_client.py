"""One way to a loaded page, timed many times: a session of this server, or a Chromium that Playwright starts itself. Run by `bench browsers`."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from browserbase import Browserbase
from playwright.sync_api import Playwright, sync_playwright

PAGE = "data:text/html,<title>loaded</title><h1>It is here"


def by_session(playwright: Playwright, bb: Browserbase) -> tuple[float, Any]:
    began = time.perf_counter()
    session = bb.sessions.create()
    browser = playwright.chromium.connect_over_cdp(session.connect_url)
    page = browser.contexts[0].pages[0]
    page.goto(PAGE)
    assert page.title() == "loaded"
    return time.perf_counter() - began, browser


def by_hand(playwright: Playwright) -> tuple[float, Any]:
    began = time.perf_counter()
    browser = playwright.chromium.launch(executable_path=os.environ["CHROMIUM"], args=["--no-sandbox"])
    page = browser.new_page()
    page.goto(PAGE)
    assert page.title() == "loaded"
    return time.perf_counter() - began, browser


def main() -> None:
    rounds, rest_s = int(sys.argv[1]), float(sys.argv[2])
    bb, found = Browserbase(), {"session": [], "local": []}  # type: ignore[var-annotated]
    with sync_playwright() as playwright:
        for number in range(rounds + 1):  # the first of each is not counted
            for name, way in (("session", lambda: by_session(playwright, bb)), ("local", lambda: by_hand(playwright))):
                time.sleep(rest_s)  # until the warm pool is full again
                seconds, browser = way()
                browser.close()
                if number:
                    found[name].append(seconds)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
