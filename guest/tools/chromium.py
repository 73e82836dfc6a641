"""The browser itself: one Chromium with one profile, driven by Playwright; started when first needed, and again if it is gone."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastmcp.exceptions import ToolError

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ACTION_MS = 10_000
START_S = 60.0
VIEWPORT = {"width": 1280, "height": 800}
# The sandbox around it is the boundary; Chromium's own needs rights that a sandbox's user does not have.
FLAGS = ("--disable-dev-shm-usage", "--disable-gpu", "--no-first-run", "--hide-crash-restore-bubble")


class Chromium:
    def __init__(self, profile: Path) -> None:
        self._profile = profile
        self._turn = asyncio.Lock()
        self._playwright: Any = None
        self._context: Any = None
        self._page: Any = None

    @asynccontextmanager
    async def page(self) -> AsyncIterator[Any]:
        """The tab in front, for one action at a time. What Playwright raises becomes `ToolError`."""
        async with self._turn:
            with _told():
                yield await self.front()

    async def tabs(self) -> list[Any]:
        return list(self._context.pages) if self._context is not None else []

    def show(self, page: Any) -> None:
        """This tab is in front from now on."""
        self._page = page

    async def new_tab(self) -> Any:
        self._page = await self._context.new_page()
        return self._page

    async def close(self) -> None:
        for part, end in ((self._context, "close"), (self._playwright, "stop")):
            if part is not None:
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(getattr(part, end)(), 5)
        self._context = self._playwright = self._page = None

    async def front(self) -> Any:
        """The tab in front; there is always one."""
        if self._context is None:
            await self._start()
        if self._page is None or self._page.is_closed():
            pages = await self.tabs()
            self._page = pages[-1] if pages else await self._context.new_page()
        return self._page

    async def _start(self) -> None:
        program = _program()
        if program is None or importlib.util.find_spec("playwright") is None:
            raise ToolError(
                "this sandbox has no browser: its template comes without Chromium and Playwright; use one made from 'browser'"
            )
        from playwright.async_api import async_playwright

        try:
            async with asyncio.timeout(START_S):
                self._playwright = await async_playwright().start()
                self._context = await self._launch(program)
        except BaseException:
            await self.close()
            raise
        self._context.set_default_timeout(ACTION_MS)
        self._context.on("close", lambda _: self._gone())
        self._context.on("page", self.show)  # a tab that a click opened is what comes next

    async def _launch(self, program: str) -> Any:
        self._profile.mkdir(mode=0o700, parents=True, exist_ok=True)
        for lock in self._profile.glob("Singleton*"):  # of a browser that was ended, perhaps in another sandbox
            lock.unlink(missing_ok=True)
        return await self._playwright.chromium.launch_persistent_context(
            self._profile,
            executable_path=program,
            headless=True,
            chromium_sandbox=False,
            args=list(FLAGS),
            viewport=VIEWPORT,
            timeout=START_S * 1000,
        )

    def _gone(self) -> None:
        self._context = self._page = None


def _program() -> str | None:
    named = os.environ.get("SANDLOT_TOOLS_CHROMIUM")
    return named or next((path for name in PROGRAMS if (path := shutil.which(name))), None)


@contextlib.contextmanager
def _told() -> Any:
    try:
        yield
    except ToolError:
        raise
    except TimeoutError as error:
        raise ToolError(f"the browser did not start within {START_S:.0f} s") from error
    except Exception as error:
        if not type(error).__module__.startswith("playwright"):
            raise
        raise ToolError(_words(error)) from error


def _words(error: Exception) -> str:
    """Without the log of how Playwright tried, but for its last lines: they say what was in the way."""
    text = str(getattr(error, "message", error))
    first, _, log = text.partition("Call log:")
    tries = [line.strip(" -\t") for line in log.splitlines() if line.strip()]
    return " ".join(filter(None, [first.strip()[:500], "; ".join(tries[-3:])[:500]]))
