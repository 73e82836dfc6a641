"""Our own connection to a browser, beside those of its clients: keeps pages to allowed domains and a viewport, answers proxies, records."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from sandlot.platform.browsers.cdp import CdpClient
from sandlot.platform.browsers.recording import FRAME_S, QUALITY, Recording
from sandlot.platform.core.browsers import BrowserOptions
from sandlot.platform.core.errors import NotFound, PlatformError
from sandlot.platform.core.model import PortAddress

log = logging.getLogger(__name__)
AGAIN_S = 0.5
READY_S = 20.0
MOST_PAGES = 100
Find = Callable[[], Awaitable[tuple[PortAddress, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Duties:
    """What an observer does."""

    options: BrowserOptions
    credentials: Mapping[str, tuple[str, str]] = field(default_factory=dict, repr=False)  # by `host:port` of proxies

    @property
    def are_any(self) -> bool:
        options = self.options
        return bool(options.viewport or options.allowed_domains or options.is_recorded or self.credentials)


class BrowserObserver:
    """Connects, and connects again when the connection is lost, until it is closed or the browser is gone."""

    def __init__(self, duties: Duties, find: Find, recording: Recording | None) -> None:
        self._duties, self._find, self._recording = duties, find, recording
        self._client: CdpClient | None = None
        self._pages: dict[str, str] = {}  # sessions of ours, and the pages they are about
        self._ready = asyncio.Event()
        self._acks: set[asyncio.Task[None]] = set()
        self._keeping = asyncio.create_task(self._keep())

    async def ready(self) -> None:
        """Returns when pages are watched. Raises `TimeoutError`."""
        async with asyncio.timeout(READY_S):
            await self._ready.wait()

    async def close(self) -> None:
        tasks = [self._keeping, *self._acks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._recording is not None:
            self._recording.close()

    async def _keep(self) -> None:
        while True:
            try:
                address, path = await self._find()
                async with CdpClient(address, path, self._event) as client:
                    self._client = client
                    await client.call(
                        "Target.setAutoAttach",
                        autoAttach=True,
                        waitForDebuggerOnStart=True,
                        flatten=True,
                        filter=[{"type": "page"}],
                    )
                    self._ready.set()
                    await client.ended()
            except NotFound:
                return
            except PlatformError as error:
                log.info("a browser cannot be watched just now: %s", error)
            finally:
                self._client = None
                self._ready.clear()
                self._pages.clear()
            await asyncio.sleep(AGAIN_S)

    async def _event(self, method: str, session: str | None, params: Mapping[str, Any]) -> None:
        if method == "Target.attachedToTarget":
            await self._attached(params)
        elif method == "Target.detachedFromTarget":
            self._pages.pop(str(params.get("sessionId")), None)
        elif session is not None and session in self._pages:
            if method == "Fetch.requestPaused":
                await self._paused(session, params)
            elif method == "Fetch.authRequired":
                await self._authenticate(session, params)
            elif method == "Page.screencastFrame":
                self._frame(session, params)

    async def _attached(self, params: Mapping[str, Any]) -> None:
        session, target = params.get("sessionId"), params.get("targetInfo")
        if self._client is None or not isinstance(session, str) or not isinstance(target, dict):
            return
        client, options = self._client, self._duties.options
        if len(self._pages) < MOST_PAGES:
            self._pages[session] = str(target.get("targetId"))[:64]
            if options.viewport is not None:
                size = {"width": options.viewport.width, "height": options.viewport.height}
                await client.tell(
                    "Emulation.setDeviceMetricsOverride", session, **size, deviceScaleFactor=1, mobile=False
                )
            if self._duties.credentials:
                await client.tell("Fetch.enable", session, patterns=[{"urlPattern": "*"}], handleAuthRequests=True)
            elif options.allowed_domains:
                await client.tell("Fetch.enable", session, patterns=[{"urlPattern": "*", "resourceType": "Document"}])
            if self._recording is not None:
                await client.tell(
                    "Page.startScreencast", session, format="jpeg", quality=QUALITY, maxWidth=1280, maxHeight=1280
                )
        await client.tell("Runtime.runIfWaitingForDebugger", session)

    async def _paused(self, session: str, params: Mapping[str, Any]) -> None:
        request, number = params.get("request"), params.get("requestId")
        if self._client is None or not isinstance(request, dict) or not isinstance(number, str):
            return
        is_page = params.get("resourceType") == "Document" and params.get("frameId") == self._pages[session]
        if is_page and not is_allowed(str(request.get("url")), self._duties.options.allowed_domains):
            await self._client.tell("Fetch.failRequest", session, requestId=number, errorReason="BlockedByClient")
        else:
            await self._client.tell("Fetch.continueRequest", session, requestId=number)

    async def _authenticate(self, session: str, params: Mapping[str, Any]) -> None:
        asked, number = params.get("authChallenge"), params.get("requestId")
        if self._client is None or not isinstance(asked, dict) or not isinstance(number, str):
            return
        known = self._duties.credentials.get(urlsplit(str(asked.get("origin"))).netloc)
        answer: dict[str, str] = {"response": "Default"}
        if asked.get("source") == "Proxy" and known is not None:
            answer = {"response": "ProvideCredentials", "username": known[0], "password": known[1]}
        await self._client.tell("Fetch.continueWithAuth", session, requestId=number, authChallengeResponse=answer)

    def _frame(self, session: str, params: Mapping[str, Any]) -> None:
        if self._recording is not None:
            self._recording.add(self._pages[session], str(params.get("data", "")))
        task = asyncio.create_task(self._acknowledge(session, params.get("sessionId")))
        self._acks.add(task)
        task.add_done_callback(self._acks.discard)

    async def _acknowledge(self, session: str, number: object) -> None:
        """Later: the next frame comes only then, so this bounds how many there are."""
        await asyncio.sleep(FRAME_S)
        if self._client is not None and isinstance(number, int) and session in self._pages:
            with contextlib.suppress(PlatformError):
                await self._client.tell("Page.screencastFrameAck", session, sessionId=number)


def is_allowed(url: str, domains: tuple[str, ...]) -> bool:
    """Whether a page of this address may be opened; a domain stands for all below it."""
    if not domains:
        return True
    try:
        host = (urlsplit(url).hostname or "").rstrip(".").lower()
    except ValueError:
        return False
    plain = [domain.lower().removeprefix("*.").rstrip(".") for domain in domains]
    return any(host == domain or host.endswith(f".{domain}") for domain in plain)
