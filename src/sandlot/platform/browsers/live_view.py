"""Looking at a page of a browser and clicking in it: pictures one way, input the other, each of them checked."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sandlot.platform.browsers import cdp
from sandlot.platform.browsers.attachments import Attachments
from sandlot.platform.browsers.cdp import CdpClient
from sandlot.platform.browsers.recording import JPEG, MAX_FRAME
from sandlot.platform.core.browsers import Browser
from sandlot.platform.core.errors import InvalidRequest, NotFound, Unavailable

FIRST = "first"  # instead of the id of a page: whichever is open
MAX_TEXT = 4096
_MOUSE = frozenset({"mousePressed", "mouseReleased", "mouseMoved", "mouseWheel"})
_KEYS = frozenset({"keyDown", "keyUp", "rawKeyDown", "char"})
_BUTTONS = frozenset({"none", "left", "middle", "right"})
Show = Callable[[bytes], Awaitable[None]]
Next = Callable[[], Awaitable[str | None]]


class LiveView:
    def __init__(self, attachments: Attachments) -> None:
        self._attachments = attachments

    async def pages(self, browser: Browser) -> list[dict[str, str]]:
        """The open pages, as the browser tells of them."""
        address, _ = await self._attachments.spoken_at(browser)
        async with cdp.guest_session() as client:
            return await cdp.pages(client, address)

    async def show(self, browser: Browser, page: str, show: Show, next_input: Next) -> None:
        """Until the viewer leaves or the page is closed. Raises `NotFound`, `InvalidRequest`, `BrowserSilent`."""
        address, _ = await self._attachments.spoken_at(browser)
        target = page
        if page == FIRST:
            known = await self.pages(browser)
            if not known:
                raise NotFound("no page is open in this browser")
            target = known[0]["id"]
        if not cdp.is_target(target):
            raise NotFound("there is no such page")
        frames: asyncio.Queue[tuple[bytes, int]] = asyncio.Queue(maxsize=4)

        async def seen(method: str, _: str | None, params: Mapping[str, Any]) -> None:
            if method == "Page.screencastFrame" and (picture := _picture(params)) is not None and not frames.full():
                frames.put_nowait(picture)

        async with CdpClient(address, f"/devtools/page/{target}", seen) as client:
            await client.call("Page.startScreencast", format="jpeg", quality=60, maxWidth=1280, maxHeight=1280)
            tasks = (
                asyncio.create_task(_pictures(client, frames, show)),
                asyncio.create_task(_inputs(client, next_input)),
                asyncio.create_task(client.ended()),
            )
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                with contextlib.suppress(Unavailable):
                    await client.tell("Page.stopScreencast")


async def _pictures(client: CdpClient, frames: asyncio.Queue[tuple[bytes, int]], show: Show) -> None:
    while True:
        picture, number = await frames.get()
        await show(picture)
        await client.tell("Page.screencastFrameAck", sessionId=number)  # only now: the viewer sets the pace


async def _inputs(client: CdpClient, next_input: Next) -> None:
    while (text := await next_input()) is not None:
        method, params = parsed_input(text)
        await client.tell(method, **params)


def parsed_input(text: str) -> tuple[str, dict[str, Any]]:
    """A viewer's input as a command for the browser. Raises `InvalidRequest`."""
    try:
        found = json.loads(text) if len(text) <= MAX_TEXT else None
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict) and found.get("type") in _MOUSE and found.get("button", "none") in _BUTTONS:
        numbers = {
            name: _number(found.get(name, 0)) for name in ("x", "y", "deltaX", "deltaY", "modifiers", "clickCount")
        }
        whole = {name: int(numbers.pop(name)) for name in ("modifiers", "clickCount")}
        return "Input.dispatchMouseEvent", {
            "type": found["type"],
            "button": found.get("button", "none"),
            **numbers,
            **whole,
        }
    if isinstance(found, dict) and found.get("type") in _KEYS:
        words = {name: str(found[name])[:64] for name in ("key", "code", "text") if isinstance(found.get(name), str)}
        codes = {name: int(_number(found[name])) for name in ("windowsVirtualKeyCode", "modifiers") if name in found}
        return "Input.dispatchKeyEvent", {"type": found["type"], **words, **codes}
    if isinstance(found, dict) and found.get("type") == "paste" and isinstance(found.get("text"), str):
        return "Input.insertText", {"text": found["text"]}
    raise InvalidRequest("this is no input that a live view takes")


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e6 <= value <= 1e6:
        raise InvalidRequest("a number of this input is out of range")
    return value


def _picture(params: Mapping[str, Any]) -> tuple[bytes, int] | None:
    data, number = params.get("data"), params.get("sessionId")
    if not isinstance(data, str) or not isinstance(number, int) or len(data) > MAX_FRAME * 4 // 3:
        return None
    try:
        picture = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    return (picture, number) if picture.startswith(JPEG) else None
