"""Grants: how a browser gets into a protected port of a sandbox, by an address that works once and then by a cookie.

A grant is kept here until it is used or too old. The cookie that it becomes is a signature with the sandbox's own traffic token: it
is good for one port of one sandbox, for as long as that token is, and outlives a restart of the server.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from sandlot.engine.core.errors import Unavailable
from sandlot.engine.core.model import Sandbox

PARAMETER = "sandlot_grant"  # of the query, in the address of the port
PREFIX = "slg_"
GRANT_S = 60.0
COOKIE_S = 12 * 3600
MOST_GRANTS = 10_000
MOST_COOKIES = 8  # looked at in one request
MAX_LENGTH = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class PortGrant:
    """Lets one browser into one port, once. The token is not kept, only its digest."""

    token: str
    ends_at: datetime


class PortGrants:
    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._open: dict[bytes, tuple[float, str, int]] = {}  # until when, for which sandbox and port; oldest first

    def issue(self, sandbox: Sandbox, port: int) -> PortGrant:
        """Raises `Unavailable` if too many were made that nobody has used."""
        self._forget()
        if len(self._open) >= MOST_GRANTS:
            raise Unavailable("too many grants are open; try again in a minute")
        token, until = PREFIX + secrets.token_urlsafe(32), self._now() + GRANT_S
        self._open[_digest(token)] = (until, sandbox.id, port)
        return PortGrant(token=token, ends_at=datetime.fromtimestamp(until, UTC))

    def take(self, token: str, sandbox: Sandbox, port: int) -> bool:
        """Whether it lets in here. It does so once, and is spent in any case: who shows it elsewhere has stolen it."""
        found = self._open.pop(_digest(token), None) if len(token) <= MAX_LENGTH else None
        return found is not None and found[0] > self._now() and found[1:] == (sandbox.id, port)

    def cookie(self, sandbox: Sandbox, port: int) -> str:
        """What proves from now on that a grant was used. Only for a sandbox that has a traffic token."""
        until = str(int(self._now()) + COOKIE_S)
        return f"{until}.{_signature(sandbox, port, until)}"

    def admits(self, sandbox: Sandbox, port: int, cookies: Iterable[str]) -> bool:
        return any(self._is_good(sandbox, port, given) for given in list(cookies)[:MOST_COOKIES])

    def _is_good(self, sandbox: Sandbox, port: int, given: str) -> bool:
        until, _, signature = given.partition(".")
        if not sandbox.traffic_token or len(given) > MAX_LENGTH or not (until.isascii() and until.isdigit()):
            return False
        made = _signature(sandbox, port, until)
        return hmac.compare_digest(made.encode(), signature.encode("utf-8", "replace")) and self._now() < int(until)

    def _forget(self) -> None:
        now = self._now()
        while self._open and next(iter(self._open.values()))[0] <= now:
            del self._open[next(iter(self._open))]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _signature(sandbox: Sandbox, port: int, until: str) -> str:
    said = f"sandlot port grant\n{sandbox.id}\n{port}\n{until}"
    return hmac.new((sandbox.traffic_token or "").encode(), said.encode(), "sha256").hexdigest()
