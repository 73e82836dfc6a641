"""Carrying messages between one client and a browser. One message is on its way in each direction: a slow side slows the other."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable
from typing import Protocol

import aiohttp

from sandlot.platform.browsers import cdp
from sandlot.platform.browsers.attachments import BrowserClient
from sandlot.platform.browsers.interception import decide
from sandlot.platform.browsers.log_book import LogBook
from sandlot.platform.core.model import PortAddress

SEND_S = 60.0  # for a side that takes nothing
_numbers = itertools.count(1)


class CdpPeer(Protocol):
    """The client's side of a connection."""

    async def receive(self) -> str | None:
        """The next message; None when it has left."""

    async def send(self, text: str) -> None: ...


async def carry(
    peer: CdpPeer, address: PortAddress, path: str, client: BrowserClient, ready: Callable[[], Awaitable[None]]
) -> str:
    """Until either side leaves; returns why. `ready` is called when the browser answered. Raises `BrowserSilent`."""
    log = client.log
    async with cdp.guest_session() as session:
        socket = await cdp.open_socket(session, address, path)
        await ready()
        number = next(_numbers)
        tasks = [
            asyncio.create_task(_to_browser(peer, socket, log, number)),
            asyncio.create_task(_to_client(peer, socket, log, number)),
            asyncio.create_task(_ended(client)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return next(iter(done)).result()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return f"the connection was lost ({type(error).__name__})"
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(Exception):  # it may be gone
                await socket.close()


async def _ended(client: BrowserClient) -> str:
    await client.over.wait()
    return "the session has ended"


async def _to_browser(peer: CdpPeer, socket: aiohttp.ClientWebSocketResponse, log: LogBook | None, number: int) -> str:
    while (text := await peer.receive()) is not None:
        if log is not None:
            log.asked(number, text)
        decision = decide(text)
        if decision.answer is not None:
            await peer.send(decision.answer)
        if decision.forward is not None:
            async with asyncio.timeout(SEND_S):
                await socket.send_str(decision.forward)
        if decision.leaves:
            return "the client said goodbye"
    return "the client left"


async def _to_client(peer: CdpPeer, socket: aiohttp.ClientWebSocketResponse, log: LogBook | None, number: int) -> str:
    async for message in socket:
        if message.type is aiohttp.WSMsgType.TEXT:
            if log is not None:
                log.answered(number, message.data)
            async with asyncio.timeout(SEND_S):
                await peer.send(message.data)
        elif message.type is not aiohttp.WSMsgType.BINARY:
            break
    return "the browser left"
