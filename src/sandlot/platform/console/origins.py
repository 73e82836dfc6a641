"""Which requests of a browser count as the console's own: by host, Origin and Sec-Fetch-Site.

Pages of sandboxes are hostile, and the same site as the console: SameSite cookies go along with their requests. So a cookie counts
only in a request that the browser says comes from the console itself.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from sandlot.platform.core.errors import Forbidden
from sandlot.server.hosts import hostname

COOKIE, SECURE_COOKIE = "sandlot_console", "__Host-sandlot_console"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
Headers = Collection[tuple[bytes, bytes]]


class ConsoleHosts:
    """The names at which the console is served: this machine's own, the configured ones, and addresses."""

    def __init__(self, names: Collection[str] = ()) -> None:
        self._names = {"localhost", *(hostname(name) for name in names)}

    def has(self, headers: Headers) -> bool:
        name = hostname(text(headers, b"host"))
        return name in self._names or _is_address(name)


def check_origin(scope: Mapping[str, object], headers: Headers, hosts: ConsoleHosts) -> None:
    """Whether a request that is authenticated by cookie alone comes from the console. Raises `Forbidden`."""
    site, origin = text(headers, b"sec-fetch-site"), text(headers, b"origin")
    if not hosts.has(headers):
        raise Forbidden("the console is not served at this host name; [console] hosts in sandlot.toml can add it")
    if site not in ("", "none", "same-origin"):
        raise Forbidden("this request comes from another page than the console; it was not carried out")
    if origin and not _is_same(origin, text(headers, b"host"), str(scope.get("scheme", "http"))):
        raise Forbidden("this request comes from another origin than the console's; it was not carried out")
    if scope["type"] == "websocket":
        if not origin:
            raise Forbidden("a WebSocket of the console needs an Origin")
    elif scope["method"] not in SAFE and not origin and site != "same-origin":
        raise Forbidden("a request that changes something needs the console's Origin; other clients send a key")


def cookie_of(headers: Headers) -> str | None:
    """The console's cookie. Two different ones are none: the second was put there by somebody else."""
    found = set()
    for name, value in headers:
        if name == b"cookie":
            for part in value.decode("latin-1").split(";"):
                key, _, content = part.strip().partition("=")
                if key in (COOKIE, SECURE_COOKIE):
                    found.add(content)
    return found.pop() if len(found) == 1 else None


def text(headers: Headers, name: bytes) -> str:
    """The value of a header that may be there once; empty if it is missing, and what never matches if it is there twice."""
    values = [value for key, value in headers if key == name]
    return values[0].decode("latin-1").strip() if len(values) == 1 else "" if not values else "\x00"


def is_secure(scope: Mapping[str, object]) -> bool:
    return scope.get("scheme") in ("https", "wss")


def _is_same(origin: str, host: str, scheme: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or parts.path or parts.query:
        return False
    if scheme in ("https", "wss") and parts.scheme != "https":
        return False
    return parts.netloc.lower() == host.lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
