"""Streamed responses: sent at the reader's pace, ended when the reader disconnects or stops reading."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sandlot.platform.core.errors import PlatformError

log = logging.getLogger(__name__)
TIMEOUT_S = 60.0  # for a reader that reads nothing
RESET = "sandlot.reset"  # an extension of the server: resets the connection, so that a truncated response is not taken for a complete one


class Stream(Response):
    """A response in pieces. One piece is in flight, so a slow reader costs no memory and delays nobody."""

    def __init__(
        self, pieces: AsyncGenerator[bytes], media_type: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self._pieces = pieces
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.body = b""
        self.init_headers({"cache-control": "no-store", "x-accel-buffering": "no", **(headers or {})})

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        super().init_headers(headers)
        self.raw_headers = [pair for pair in self.raw_headers if pair[0] != b"content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        sending, leaving = asyncio.ensure_future(self._send(scope, send)), asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            await self._pieces.aclose()
        if sending.done() and not sending.cancelled() and (error := sending.exception()):
            self._cut(scope, error)

    async def _send(self, scope: Scope, send: Send) -> None:
        async for piece in self._pieces:
            if piece:
                async with asyncio.timeout(TIMEOUT_S):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _cut(self, scope: Scope, error: BaseException) -> None:
        if not isinstance(error, PlatformError | TimeoutError):
            raise error
        log.info("a stream was cut: %s", error or "its reader stopped reading")
        reset = scope.get("extensions", {}).get(RESET)
        if reset is None:
            raise error
        reset()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
