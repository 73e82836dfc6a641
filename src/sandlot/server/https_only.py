"""Keeps plain HTTP to this machine: from elsewhere, keys and answers travel encrypted or not at all."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]


class HttpsOnly:
    """Serves TLS and what comes from this machine; sends browsers to the https address, and tells others in a sentence."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket") or scope["scheme"] in ("https", "wss") or _is_local(scope):
            await self._app(scope, receive, send)
            return
        host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
        address = f"https://{host}{scope['raw_path'].decode('latin-1')}"
        message = f"this port speaks TLS; plain HTTP is served to this machine alone. Ask again at https://{host}"
        body = json.dumps({"code": 426, "message": message}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        status = 426
        if scope["type"] == "http" and scope["method"] in ("GET", "HEAD") and host:
            query = scope["query_string"]
            status = 308
            headers.append((b"location", address.encode("latin-1") + (b"?" + query if query else b"")))
        kind = "http.response" if scope["type"] == "http" else "websocket.http.response"
        if scope["type"] == "websocket":
            await receive()
        await send({"type": f"{kind}.start", "status": status, "headers": headers})
        await send({"type": f"{kind}.body", "body": body})


def _is_local(scope: Scope) -> bool:
    host = (scope.get("client") or ("", 0))[0].removeprefix("::ffff:")
    return host == "::1" or host.startswith("127.")
