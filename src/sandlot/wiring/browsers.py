"""Browsers: their services, put together from the configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sandlot.platform.browsers.attachments import Attachments
from sandlot.platform.browsers.boxes import BrowserBoxes
from sandlot.platform.browsers.encoding import Films
from sandlot.platform.browsers.files import BrowserFiles
from sandlot.platform.browsers.keeping import BrowserKeeper
from sandlot.platform.browsers.launching import Launching
from sandlot.platform.browsers.live_view import LiveView
from sandlot.platform.browsers.parts import BrowserServices
from sandlot.platform.browsers.profiles import Contexts, Extensions
from sandlot.platform.browsers.service import Browsers
from sandlot.platform.browsers.signing import Signing
from sandlot.platform.browsers.state import BrowserState
from sandlot.platform.browsers.vault import Vault
from sandlot.platform.browsers.webdriver import WebDriver
from sandlot.platform.core.browsers import BrowserLimits
from sandlot.platform.core.ports import Clock
from sandlot.platform.events.log import EventLog
from sandlot.platform.providers.health import ProviderRegistry
from sandlot.platform.store import Database, SqlBrowserContexts, SqlBrowserExtensions, SqlBrowsers
from sandlot.platform.store.events import Route


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserParts:
    database: Database
    route: Route
    events: EventLog
    providers: ProviderRegistry  # of their own: the sandboxes of browsers are not sessions
    limits: BrowserLimits
    secret: str
    directory: Path
    clock: Clock


def build_browsers(parts: BrowserParts) -> BrowserServices:
    clock, directory = parts.clock, parts.directory
    state = BrowserState(store=SqlBrowsers(parts.database, parts.route), events=parts.events, clock=clock)
    boxes = BrowserBoxes(providers=parts.providers, limits=parts.limits, clock=clock)
    vault = Vault(directory / "vault")
    contexts = Contexts(store=SqlBrowserContexts(parts.database, parts.route), vault=vault, clock=clock)
    extensions = Extensions(store=SqlBrowserExtensions(parts.database, parts.route), vault=vault, clock=clock)
    kept = directory / "sessions"
    attachments = Attachments(state=state, boxes=boxes, directory=kept)
    files = BrowserFiles(boxes=boxes, directory=kept)
    browsers = Browsers(
        state=state,
        boxes=boxes,
        launching=Launching(contexts=contexts, extensions=extensions),
        attachments=attachments,
        contexts=contexts,
        files=files,
        limits=parts.limits,
    )
    return BrowserServices(
        browsers=browsers,
        attachments=attachments,
        contexts=contexts,
        extensions=extensions,
        files=files,
        films=Films(attachments=attachments, boxes=boxes),
        live=LiveView(attachments),
        webdriver=WebDriver(attachments=attachments, boxes=boxes),
        signing=Signing(parts.secret, clock),
        keeper=BrowserKeeper(state=state, browsers=browsers, boxes=boxes, attachments=attachments),
    )
