"""The signed routes of browsers: clients' connections, Selenium's requests, live views and films. The key is in the address."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Annotated, Literal, cast

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse, HTMLResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from sandlot.platform.api import browser_page, websockets
from sandlot.platform.api.browser_addresses import CONNECT, FILM, LIVE, WEBDRIVER
from sandlot.platform.api.deps import Deps, Given
from sandlot.platform.browsers.relay import carry
from sandlot.platform.core.browsers import Browser
from sandlot.platform.core.errors import NotFound, PlatformError, Unauthorized

router = APIRouter(tags=["browsers"], include_in_schema=False)
SEND_S = 30.0


class SocketPeer:
    """A client of a browser, on a WebSocket. It is accepted when the browser has answered."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        self.is_accepted = False

    async def accept(self) -> None:
        await self._websocket.accept()
        self.is_accepted = True

    async def receive(self) -> str | None:
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        text = message.get("text")
        return text if text is not None else bytes(message.get("bytes") or b"").decode("utf-8", "replace")

    async def send(self, text: str) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # it has just left, which `receive` tells
            await self._websocket.send_text(text)

    async def show(self, picture: bytes) -> None:
        async with asyncio.timeout(SEND_S):
            await self._websocket.send_bytes(picture)

    async def close(self, code: int, why: str) -> None:
        with contextlib.suppress(Exception):  # it may be gone
            async with asyncio.timeout(SEND_S):
                await self._websocket.close(code, websockets.reason(why))


@router.websocket(CONNECT)
async def connect(websocket: WebSocket, signingKey: str = "") -> None:
    """A client that speaks the DevTools protocol: Playwright, Puppeteer."""
    services, peer = cast(Deps, websocket.app.state.deps).browsers, SocketPeer(websocket)

    async def serve() -> None:
        browser = await services.attachments.running(services.signing.driven(signingKey))
        async with services.attachments.client(browser) as client:
            address, path = await services.attachments.spoken_at(browser)
            await peer.close(websockets.NORMAL, await carry(peer, address, path, client, peer.accept))

    await _served(websocket, peer, serve())


@router.websocket(f"{LIVE}/socket")
async def live_socket(websocket: WebSocket, token: str = "") -> None:
    """A live view's pictures and input."""
    services, peer = cast(Deps, websocket.app.state.deps).browsers, SocketPeer(websocket)

    async def serve() -> None:
        browser_id, page = services.signing.viewed(token)
        browser = await services.attachments.running(browser_id)
        await peer.accept()
        await services.live.show(browser, page, peer.show, peer.receive)
        await peer.close(websockets.NORMAL, "the page was closed")

    await _served(websocket, peer, serve())


async def _served(websocket: WebSocket, peer: SocketPeer, serving: Awaitable[None]) -> None:
    try:
        await serving
    except PlatformError as error:
        if peer.is_accepted:
            await peer.close(websockets.FAILED, str(error))
        else:
            await websockets.refuse_websocket(error, websocket.scope, websocket.receive, websocket.send)
    except (WebSocketDisconnect, TimeoutError):
        await peer.close(websockets.FAILED, "the viewer does not read")


@router.get(LIVE)
async def live_page(deps: Given, token: str = "") -> Response:
    """The page that shows a browser."""
    browser_id, _ = deps.browsers.signing.viewed(token)
    await deps.browsers.attachments.running(browser_id)
    return HTMLResponse(browser_page.PAGE, headers=browser_page.HEADERS)


@router.get(f"{FILM}/film.{{kind}}")
async def film(deps: Given, kind: Literal["mp4", "ts"], token: Annotated[str, Query()] = "") -> FileResponse:
    """A recorded page as a film."""
    browser_id, page = deps.browsers.signing.viewed(token)
    browser = await deps.browsers.browsers.find(browser_id)
    path = deps.browsers.films.film(browser, page, kind) if browser is not None else None
    if path is None or not path.exists():
        raise NotFound("this film is not there any more")
    return FileResponse(
        path, media_type="video/mp4" if kind == "mp4" else "video/mp2t", headers={"X-Content-Type-Options": "nosniff"}
    )


@router.api_route(f"{WEBDRIVER}/{{key}}/{{path:path}}", methods=["GET", "POST", "DELETE"])
async def webdriver(request: Request, deps: Given, key: str, path: str) -> Response:
    """Selenium's requests."""
    services = deps.browsers
    given = request.headers.get("x-bb-signing-key", key)
    if given != key:
        raise Unauthorized("the signing key of the header is not the one of the address")
    browser: Browser = await services.attachments.running(services.signing.driven(key))
    answer = await services.webdriver.forward(browser, request.method, f"/{path}", await request.body())
    headers = {
        "Content-Type": "application/json; charset=utf-8",
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    return Response(answer.body, status_code=answer.status, headers=headers)
