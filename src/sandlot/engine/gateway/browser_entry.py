"""Browsers at protected ports: a grant in the address becomes a cookie, and neither of the two ever reaches the sandbox.

Pages of sandboxes are hostile and, for a browser, the same site as each other. So the cookie counts only in a request that the
browser says comes from the same origin, or that opens a page in a tab of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qsl

from sandlot.engine.control.port_grants import COOKIE_S, PARAMETER, PREFIX, PortGrants
from sandlot.engine.core.http_headers import RawHeaders, header
from sandlot.engine.core.model import Sandbox
from sandlot.engine.core.ports.node import Scope, Send
from sandlot.engine.gateway.routes import Target

COOKIE, SECURE_COOKIE = "sandlot_port", "__Host-sandlot_port"
OWN_COOKIES = frozenset({COOKIE.encode(), SECURE_COOKIE.encode()})
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class BrowserEntry:
    def __init__(self, grants: PortGrants) -> None:
        self._grants = grants

    def redirect(self, sandbox: Sandbox, target: Target, scope: Scope) -> RawHeaders | None:
        """The headers that send a browser with a grant to the same address without it; None if it has no grant.

        A grant that lets nobody in is taken away too: whether the browser has a cookie already decides the next request.
        """
        if not target.is_host or scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            return None
        token = _grant(scope)
        if token is None:
            return None
        headers: RawHeaders = [
            (b"location", _clean_address(scope)),
            (b"cache-control", b"no-store"),
            (b"referrer-policy", b"no-referrer"),
            (b"content-length", b"0"),
        ]
        if self._grants.take(token, sandbox, target.port) and sandbox.traffic_token:
            headers.append((b"set-cookie", self._set_cookie(sandbox, target.port, scope)))
        return headers

    def admits(self, sandbox: Sandbox, target: Target, scope: Scope) -> bool:
        """Whether this request carries the cookie of an earlier grant, and comes from where it counts."""
        given = [value for name, value in _cookies(scope["headers"]) if name in OWN_COOKIES] if target.is_host else []
        if not given or not _is_own(scope):
            return False
        return self._grants.admits(sandbox, target.port, [value.decode("latin-1") for value in given])

    def _set_cookie(self, sandbox: Sandbox, port: int, scope: Scope) -> bytes:
        secure = scope.get("scheme") in ("https", "wss")
        name, ending = (SECURE_COOKIE, "; Secure") if secure else (COOKIE, "")
        value = self._grants.cookie(sandbox, port)
        return f"{name}={value}; Path=/; Max-Age={COOKIE_S}; HttpOnly; SameSite=Lax{ending}".encode()


async def send_redirect(headers: RawHeaders, send: Send) -> None:
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def without_cookie(scope: Scope) -> Scope:
    """The request as the sandbox may see it: every other cookie as it came."""
    raw: RawHeaders = scope["headers"]
    if not any(name in OWN_COOKIES for name, _ in _cookies(raw)):
        return scope
    kept: RawHeaders = []
    for name, value in raw:
        if name == b"cookie":
            parts = [part for part in value.split(b";") if _pair(part)[0] not in OWN_COOKIES]
            if not parts:
                continue
            value = b";".join(parts).strip()
        kept.append((name, value))
    return {**scope, "headers": kept}


def _is_own(scope: Scope) -> bool:
    raw: RawHeaders = scope["headers"]
    site, origin, host = (header(raw, name) for name in (b"sec-fetch-site", b"origin", b"host"))
    if origin is not None and origin.partition(b"://")[2].lower() != (host or b"").strip().lower():
        return False
    if scope["type"] == "websocket":
        return origin is not None
    if site in (b"same-origin", b"none"):
        return True
    if scope["method"] not in SAFE:
        return site is None and origin is not None
    opens_page = header(raw, b"sec-fetch-mode") == b"navigate" and header(raw, b"sec-fetch-dest") == b"document"
    return site is None or opens_page


def _grant(scope: Scope) -> str | None:
    text = scope["query_string"].decode("latin-1")
    if f"{PARAMETER}={PREFIX}" not in text:
        return None
    return next((value for name, value in parse_qsl(text) if name == PARAMETER), None)


def _clean_address(scope: Scope) -> bytes:
    """Path and query without the grant. One slash at the beginning: two would name another host."""
    path: bytes = b"/" + scope["raw_path"].partition(b"?")[0].lstrip(b"/\\")
    parts: list[bytes] = scope["query_string"].split(b"&")
    query = b"&".join(part for part in parts if part and part.partition(b"=")[0] != PARAMETER.encode())
    return path + (b"?" + query if query else b"")


def _cookies(raw: RawHeaders) -> Iterator[tuple[bytes, bytes]]:
    for name, value in raw:
        if name == b"cookie":
            yield from map(_pair, value.split(b";"))


def _pair(part: bytes) -> tuple[bytes, bytes]:
    name, _, value = part.strip().partition(b"=")
    return name.strip(), value.strip()
