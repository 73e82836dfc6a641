"""Which headers pass into a sandbox and back, and how they change on the way."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from functools import lru_cache

from multidict import CIMultiDict

from sandlot.engine.core.http_headers import TRAFFIC_TOKEN, RawHeaders, connection_tokens, header
from sandlot.engine.core.model import ENVD_PORT, ProxyTarget
from sandlot.engine.core.ports.node import Scope

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
        b"x-offer",  # the server's name for an offer of HTTP/2
    }
)
_OWN = HOP_BY_HOP | {TRAFFIC_TOKEN, b"host", b"expect", b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host"}
_BROKEN = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


def to_upstream(scope: Scope, target: ProxyTarget) -> CIMultiDict[str]:
    """The request's headers as the service in the sandbox gets them: duplicates and order kept."""
    raw: RawHeaders = scope["headers"]
    dropped = _OWN | connection_tokens(raw)
    websocket = scope["type"] == "websocket"
    headers: CIMultiDict[str] = CIMultiDict()
    headers["Host"] = _host(raw, target)
    for name, value in raw:
        if name in dropped or (websocket and name.startswith(b"sec-websocket-")):
            continue
        headers.add(name.decode("latin-1"), value.decode("latin-1"))
    _add_forwarded(headers, scope)
    return headers


def _host(raw: RawHeaders, target: ProxyTarget) -> str:
    if target.host_mask and target.port != ENVD_PORT:
        return target.host_mask.replace("${PORT}", str(target.port))
    return (header(raw, b"host") or b"").decode("latin-1")


def _add_forwarded(headers: CIMultiDict[str], scope: Scope) -> None:
    """Say who asked, how and for which host. What a caller says about itself counts only from a proxy on this machine."""
    raw: RawHeaders = scope["headers"]
    client = scope["client"][0] if scope.get("client") else "unknown"
    trusted = _is_loopback(client)
    earlier = header(raw, b"x-forwarded-for") if trusted else None
    headers["X-Forwarded-For"] = f"{earlier.decode('latin-1')}, {client}" if earlier else client
    secure = scope.get("scheme") in ("https", "wss")
    headers["X-Forwarded-Proto"] = _said(raw, b"x-forwarded-proto", trusted) or ("https" if secure else "http")
    host = _said(raw, b"x-forwarded-host", trusted) or (header(raw, b"host") or b"").decode("latin-1")
    headers["X-Forwarded-Host"] = host


def _said(raw: RawHeaders, name: bytes, trusted: bool) -> str | None:
    value = header(raw, name) if trusted else None
    return value.decode("latin-1") if value else None


@lru_cache(1024)
def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def to_client(raw: Sequence[tuple[bytes, bytes]]) -> RawHeaders | None:
    """The response's headers as the client gets them; None if the service sent something that is no header."""
    dropped = HOP_BY_HOP | connection_tokens(raw)
    kept = [(name, value) for name, value in raw if name.lower() not in dropped]
    return None if any(_BROKEN.search(value) for _, value in kept) else kept
