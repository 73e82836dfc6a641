"""Making a browser what was asked for: Chromium is up already, and is started anew only for what it takes at its start alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sandlot.platform.browsers import cdp
from sandlot.platform.browsers.boxes import HERE, run_in
from sandlot.platform.browsers.profiles import Contexts, Extensions
from sandlot.platform.browsers.proxies import pac_option
from sandlot.platform.core.browsers import Browser, BrowserRequest, ProxyRule
from sandlot.platform.core.ports import Box

READY_S = 30.0
RETRY_S = 0.1


class Launching:
    def __init__(self, *, contexts: Contexts, extensions: Extensions) -> None:
        self._contexts, self._extensions = contexts, extensions

    async def check(self, request: BrowserRequest) -> None:
        """What can be refused before there is a sandbox. Raises `NotFound`, `InvalidRequest`."""
        if request.context_id is not None:
            await self._contexts.get(request.user_id, request.context_id)
        if request.options.extension_id is not None:
            await self._extensions.get(request.user_id, request.options.extension_id)
        if request.proxies:
            pac_option(request.proxies)

    async def launch(self, browser: Browser, box: Box, proxies: Sequence[ProxyRule]) -> str:
        """Returns where the browser is spoken to."""
        options, has_profile = await self._options(browser, box, proxies), False
        if browser.context_id is not None:
            context = await self._contexts.get(browser.user_id, browser.context_id)
            has_profile = await self._contexts.load(context, box)
        if options or has_profile:
            await run_in(box, f"{HERE}/restart.sh", *options)
        return await spoken_at(box)

    async def _options(self, browser: Browser, box: Box, proxies: Sequence[ProxyRule]) -> list[str]:
        """Those of Chromium's command line."""
        wanted, found = browser.options, []
        if proxies:
            found.append(pac_option(proxies))
        if wanted.ignores_certificates:
            found.append("--ignore-certificate-errors")
        if wanted.viewport is not None and found:
            found.append(f"--window-size={wanted.viewport.width},{wanted.viewport.height}")
        if wanted.extension_id is not None:
            extension = await self._extensions.get(browser.user_id, wanted.extension_id)
            found.append(await self._extensions.load(extension, box))
        return found


async def spoken_at(box: Box) -> str:
    """Waits until the browser answers. Raises `BrowserSilent`."""
    async with cdp.guest_session() as client:
        deadline = asyncio.get_running_loop().time() + READY_S
        while True:
            try:
                return await cdp.browser_path(client, box.address(cdp.PORT))
            except cdp.BrowserSilent:
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(RETRY_S)
