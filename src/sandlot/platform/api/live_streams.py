"""Streams and WebSockets that are open: cut as soon as the key or the login that opened them is no longer valid."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandlot.platform.api.streams import RESET
from sandlot.platform.api.websockets import POLICY
from sandlot.platform.core.errors import PlatformError, Unauthorized

log = logging.getLogger(__name__)
INTERVAL_S = 5.0  # how soon a revocation by another process is noticed
CLOSE_S = 1.0
Check = Callable[[], Awaitable[object]]  # raises `Unauthorized` when its caller may no longer be served


@dataclass(eq=False, slots=True)
class _Open:
    task: asyncio.Task[object]
    check: Check
    scope: Scope
    send: Send
    is_cut: bool = field(default=False)


class LiveStreams:
    def __init__(self) -> None:
        self._open: set[_Open] = set()
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Somebody was logged out, or a key revoked: look at once."""
        self._changed.set()

    async def serve(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, check: Check) -> None:
        """Serve a request. What has a beginning and is not over is watched from then on; a plain answer costs nothing."""
        task = asyncio.current_task()
        assert task is not None
        stream = _Open(task, check, scope, send)

        async def watched(message: Message) -> None:
            if message["type"] == "websocket.accept" or message.get("more_body"):
                self._open.add(stream)
            await send(message)

        try:
            await app(scope, receive, watched)
        except asyncio.CancelledError:
            if not stream.is_cut:
                raise
            task.uncancel()
        finally:
            self._open.discard(stream)

    async def run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), INTERVAL_S)
            self._changed.clear()
            await self.sweep()

    async def sweep(self) -> None:
        """Look at all that is open, once."""
        for stream in list(self._open):
            try:
                await stream.check()
            except Unauthorized:
                await self._cut(stream)
            except PlatformError as error:  # the database is away: nobody is cut for that
                log.info("could not check an open stream: %s", error)

    async def _cut(self, stream: _Open) -> None:
        if stream not in self._open:
            return
        self._open.discard(stream)
        stream.is_cut = True
        with contextlib.suppress(Exception):  # it may be gone
            if stream.scope["type"] == "websocket":
                async with asyncio.timeout(CLOSE_S):
                    reason = "the key was revoked, or the browser logged out"
                    await stream.send({"type": "websocket.close", "code": POLICY, "reason": reason})
            elif (reset := stream.scope.get("extensions", {}).get(RESET)) is not None:
                reset()  # so that what is there is not taken for all of it
        stream.task.cancel()
