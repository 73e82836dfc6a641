"""What the gateway itself says when it does not forward a request: E2B's JSON, or a page for people in browsers."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass, field
from typing import Any

from sandlot.engine.core.errors import (
    BadUpstream,
    Draining,
    ForwardFailed,
    PortClosed,
    TooManyConnections,
    UpstreamRefused,
)
from sandlot.engine.core.ports.node import Scope, Send

BROWSERS = (b"mozilla", b"chrome", b"safari", b"firefox", b"edg", b"opera", b"msie")


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    message: str
    fields: dict[str, Any] = field(default_factory=dict)

    def json(self) -> bytes:
        return json.dumps({**self.fields, "message": self.message, "code": self.status}).encode()

    def page(self) -> bytes:
        text = html.escape(self.message)
        return (
            f"<!doctype html><html lang=en><meta charset=utf-8><title>{self.status}: {text}</title>"
            "<meta name=viewport content='width=device-width'><style>body{font:16px/1.5 system-ui,sans-serif;"
            "max-width:36rem;margin:20vh auto;padding:0 1rem;color:#222}h1{font-size:1.2rem}p{color:#666}</style>"
            f"<h1>{text}</h1>{self._details()}</html>"
        ).encode()

    def _details(self) -> str:
        rows = " · ".join(f"{html.escape(str(k))}: {html.escape(str(v))}" for k, v in self.fields.items())
        return f"<p>{rows}</p>" if rows else ""


def not_found(sandbox_id: str) -> Reply:
    return Reply(502, "The sandbox was not found", {"sandboxId": sandbox_id})


def port_closed(sandbox_id: str, port: int) -> Reply:
    return Reply(502, "The sandbox is running but port is not open", {"sandboxId": sandbox_id, "port": port})


def bad_upstream(sandbox_id: str, port: int, what: str) -> Reply:
    return Reply(502, f"The service in the sandbox {what}", {"sandboxId": sandbox_id, "port": port})


def transitioning(sandbox_id: str) -> Reply:
    return Reply(409, "The sandbox is being paused or resumed; try again in a moment", {"sandboxId": sandbox_id})


def too_many(sandbox_id: str, limit: int) -> Reply:
    fields = {"sandboxId": sandbox_id, "connectionLimit": limit}
    return Reply(
        429,
        f"This sandbox already has {limit} requests in progress, the most that one may have; try again later",
        fields,
    )


def forward_failed(sandbox_id: str, port: int, failure: ForwardFailed) -> Reply:
    match failure:
        case PortClosed():
            return port_closed(sandbox_id, port)
        case BadUpstream():
            return bad_upstream(sandbox_id, port, str(failure))
        case UpstreamRefused():
            status = failure.status if 400 <= failure.status <= 599 else 502
            return Reply(status, str(failure), {"sandboxId": sandbox_id, "port": port})
        case TooManyConnections():
            return too_many(sandbox_id, failure.limit)
        case Draining():
            return transitioning(sandbox_id)
        case _:
            return not_found(sandbox_id)


def internal_route(path: str) -> Reply:
    message = "Only the server itself may call this route of the sandbox's daemon"
    return Reply(404, message, {"path": path})


def token_missing(sandbox_id: str) -> Reply:
    message = (
        "The ports of this sandbox are private: send its traffic access token in the header e2b-traffic-access-token"
    )
    return Reply(403, message, {"sandboxId": sandbox_id})


def token_wrong(sandbox_id: str) -> Reply:
    message = "The traffic access token in the header e2b-traffic-access-token is not the one of this sandbox"
    return Reply(403, message, {"sandboxId": sandbox_id})


async def send_reply(reply: Reply, scope: Scope, send: Send, *, close: bool = False) -> None:
    """Send it; on a WebSocket, as the answer to its handshake."""
    as_page = _wants_page(scope)
    body = reply.page() if as_page else reply.json()
    kind = b"text/html; charset=utf-8" if as_page else b"application/json; charset=utf-8"
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    # Pages of other origins (a preview, a console) must be able to read why their request failed.
    headers += [(b"access-control-allow-origin", b"*"), (b"cache-control", b"no-store")]
    if close:
        headers.append((b"connection", b"close"))
    prefix = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    await send({"type": f"{prefix}.start", "status": reply.status, "headers": headers})
    await send({"type": f"{prefix}.body", "body": body, "more_body": False})


def _wants_page(scope: Scope) -> bool:
    agent = accept = b""
    for name, value in scope["headers"]:
        if name == b"user-agent":
            agent = value.lower()
        elif name == b"accept":
            accept = value.lower()
    return b"json" not in accept and any(browser in agent for browser in BROWSERS)
