"""A sandbox's screen for somebody in a browser: admits a viewer inside, and connects to the VNC behind the tools' port."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from sandlot.platform.core.errors import Conflict, Unavailable
from sandlot.platform.core.ports import Box, Channel

PORT, PATH = 6060, "/screen"
ASK_S, OPEN_S, CLOSE_S = 30.0, 30.0, 2.0
MAX_FRAME = 1 << 20
MAX_WORDS = 300
NO_SUCH_COMMAND = 127
NO_SCREEN = "this sandbox has no screen to show: the template 'desktop' has one"


@contextlib.asynccontextmanager
async def open_screen(box: Box, *, control: bool) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """VNC in binary messages. Without `control`, the sandbox takes no input. Raises `Conflict`: it has no screen; `Unavailable`."""
    token = secrets.token_urlsafe(32)
    await _admit(box, token, control)
    address = box.address(PORT)
    parts = urlsplit(address.url)
    headers = {**address.headers, "Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(trust_env=False, trace_configs=[_no_redirects()]) as session:
        try:
            async with asyncio.timeout(OPEN_S):
                socket = await session.ws_connect(
                    urlunsplit(parts._replace(path=PATH)),
                    headers=headers,
                    max_msg_size=MAX_FRAME,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),
                    compress=0,
                )
        except aiohttp.WSServerHandshakeError as error:
            raise Conflict(NO_SCREEN) from error
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Unavailable(f"the screen does not answer ({type(error).__name__}); try again") from error
        try:
            yield socket
        finally:
            await socket.close()


def _no_redirects() -> aiohttp.TraceConfig:
    """What answers is the guest's: it must not send us, with our headers, to other addresses."""

    async def refuse(*_: object) -> None:
        raise Conflict("what answers at the screen's port is not our screen: it redirects")

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(refuse)
    return trace


async def _admit(box: Box, token: str, control: bool) -> None:
    """The sandbox is given only the token's hash, and the token is good for one connection."""
    said: list[str] = []

    async def listen(_: Channel, text: str) -> None:
        if sum(map(len, said)) < MAX_WORDS:
            said.append(text[:MAX_WORDS])

    digest = hashlib.sha256(token.encode()).hexdigest()
    words = f"sandlot-tools admit-viewer {digest}{' --control' if control else ''}"
    running = await box.commands.start(words, cwd=None, envs={}, user=None, on_output=listen)
    try:
        exit_code = await asyncio.wait_for(running.wait(), ASK_S)
    except TimeoutError:
        await running.kill()
        raise Unavailable("the sandbox does not answer; try again") from None
    if exit_code == NO_SUCH_COMMAND:
        raise Conflict(NO_SCREEN)
    if exit_code:
        raise Conflict(f"{NO_SCREEN} (it says: {''.join(said)[:MAX_WORDS].strip()})")
