"""How WebSockets are refused and closed: with the platform's errors, as far as the protocol can carry them."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from sandlot.platform.api import errors
from sandlot.platform.core.errors import PlatformError

DENIAL = "websocket.http.response"  # the ASGI extension that lets a handshake be answered with a plain response
NORMAL, POLICY, TOO_BIG, FAILED = 1000, 1008, 1009, 1011
MAX_REASON = 120  # bytes; the protocol has room for 123


async def refuse_websocket(error: PlatformError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer the handshake as an HTTP request would be answered."""
    if DENIAL in (scope.get("extensions") or {}):
        await errors.answer(error)(scope, receive, send)
    else:
        await send({"type": "websocket.close", "code": POLICY, "reason": reason(str(error))})


def reason(text: str) -> str:
    return text.encode("utf-8", "replace")[:MAX_REASON].decode("utf-8", "ignore")
