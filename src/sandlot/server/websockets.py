"""The server's WebSockets: uvicorn's, and a way to hand an open one over whole, so that its messages are never held here."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

TAKE_OVER = "sandlot.take_over"  # an extension of ASGI: a function that gives the accepted connection away


class WebSockets(WebSocketsSansIOProtocol):
    """Until somebody takes it over, uvicorn's own."""

    _is_taken = False

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope["extensions"][TAKE_OVER] = self._take_over  # type: ignore[assignment]

    def _take_over(self) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """The connection, not being read from, and who must be told when it is lost. Only right after it was accepted."""
        if not self.queue.empty() or self.conn.reader.buffer or self.transport.is_closing():
            raise ConnectionAbortedError("the client left, or spoke before its turn")
        self.stop_keepalive()
        self._is_taken = True
        self.transport.pause_reading()
        return self.transport, self

    def shutdown(self) -> None:
        if self._is_taken:  # whose frames these are is not for us to know: nothing can be said in between
            self.transport.abort()
        else:
            super().shutdown()
