"""Addresses of browsers, at the name by which the caller reached this server; and which requests carry their key in the address."""

from __future__ import annotations

from urllib.parse import quote

from starlette.requests import Request
from starlette.types import Scope

BASE = "/browserbase"
CONNECT = f"{BASE}/connect"
WEBDRIVER = f"{BASE}/webdriver"
LIVE = f"{BASE}/live"
FILM = f"{BASE}/film"
_SIGNED = (CONNECT, WEBDRIVER, LIVE, FILM)


def is_signed(scope: Scope) -> bool:
    """Whether a request is for a route that checks a signed address itself, so that it needs no key."""
    path: str = scope["path"]
    return any(path == prefix or path.startswith(f"{prefix}/") for prefix in _SIGNED)


class Addresses:
    def __init__(self, request: Request) -> None:
        base = request.base_url
        self._http = f"{base.scheme}://{base.netloc}"
        self._socket = f"{'wss' if base.scheme == 'https' else 'ws'}://{base.netloc}"

    def connect(self, key: str) -> str:
        return f"{self._socket}{CONNECT}?signingKey={quote(key)}"

    def selenium(self, key: str) -> str:
        return f"{self._http}{WEBDRIVER}/{quote(key)}"

    def live(self, token: str) -> str:
        return f"{self._http}{LIVE}?token={quote(token)}"

    def film(self, token: str, kind: str) -> str:
        return f"{self._http}{FILM}/film.{kind}?token={quote(token)}"
