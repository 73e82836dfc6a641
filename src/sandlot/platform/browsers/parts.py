"""The services about browsers, for whoever serves them."""

from __future__ import annotations

from dataclasses import dataclass

from sandlot.platform.browsers.attachments import Attachments
from sandlot.platform.browsers.encoding import Films
from sandlot.platform.browsers.files import BrowserFiles
from sandlot.platform.browsers.keeping import BrowserKeeper
from sandlot.platform.browsers.live_view import LiveView
from sandlot.platform.browsers.profiles import Contexts, Extensions
from sandlot.platform.browsers.service import Browsers
from sandlot.platform.browsers.signing import Signing
from sandlot.platform.browsers.webdriver import WebDriver


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserServices:
    browsers: Browsers
    attachments: Attachments
    contexts: Contexts
    extensions: Extensions
    files: BrowserFiles
    films: Films
    live: LiveView
    webdriver: WebDriver
    signing: Signing
    keeper: BrowserKeeper

    async def run(self) -> None:
        await self.keeper.run()

    async def close(self) -> None:
        await self.webdriver.close()
        await self.films.close()
        await self.keeper.close()
