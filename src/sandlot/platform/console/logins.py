"""Logging browsers in and out: an API key or a one-time link becomes a session, which ends with the key."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandlot.platform.console.attempts import LoginAttempts
from sandlot.platform.core.console import BrowserSession, LoginLink, LoginStore
from sandlot.platform.core.errors import Unauthorized
from sandlot.platform.core.model import Caller, Scope
from sandlot.platform.core.ports import Clock
from sandlot.platform.identity.keys import Access, digest
from sandlot.program import SANDLOT

UNUSED = timedelta(hours=12)  # a session ends when nobody used it for so long
LONGEST = timedelta(days=7)  # and then in any case
LINK_LIFE = timedelta(minutes=10)
TOUCH_INTERVAL = timedelta(minutes=1)
CACHE_TTL = timedelta(seconds=5)  # how long a session that another process ended may still work
CACHE_SIZE = 1024
MAX_TOKEN = 128


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session that has just begun. Its cookie cannot be looked up again."""

    cookie: str
    caller: Caller


class Logins:
    def __init__(self, *, store: LoginStore, access: Access, clock: Clock) -> None:
        self._store, self._access, self._clock = store, access, clock
        self._attempts = LoginAttempts()
        self._known: dict[str, tuple[datetime, BrowserSession]] = {}
        self._listeners: list[Callable[[], None]] = []

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call back, at once and without waiting, when a browser logged out here."""
        self._listeners.append(callback)

    async def with_key(self, key: str, address: str) -> NewSession:
        """Raises `Unauthorized`, or `Busy` after too many failures from this address."""
        self._attempts.check(address)
        try:
            caller = await self._access.authenticate(key)
        except Unauthorized:
            self._attempts.failed(address)
            raise
        return await self._begin(caller, digest(key))

    async def with_link(self, token: str, address: str) -> NewSession:
        """Raises `Unauthorized` if the link was used, is too old, or its key was revoked."""
        self._attempts.check(address)
        link = await self._store.take_link(digest(token)) if len(token) <= MAX_TOKEN else None
        try:
            if link is None or link.ends_at <= self._clock():
                raise Unauthorized(
                    f"this login link was used already, or is too old; `{SANDLOT} console` makes a new one"
                )
            caller = await self._access.authenticate_digest(link.key_digest)
        except Unauthorized:
            self._attempts.failed(address)
            raise
        return await self._begin(caller, link.key_digest)

    async def as_user(self, user_id: str, scopes: Collection[Scope]) -> NewSession:
        """A session without a key: somebody else vouches for this user."""
        return await self._begin(Caller(user_id=user_id, scopes=frozenset(scopes)), None)

    async def link(self, key: str) -> tuple[str, datetime]:
        """The token of a link that logs a browser in with this key, once; and until when."""
        await self._access.authenticate(key)
        token, ends_at = secrets.token_urlsafe(32), self._clock() + LINK_LIFE
        await self._store.add_link(LoginLink(digest=digest(token), key_digest=digest(key), ends_at=ends_at))
        return token, ends_at

    async def caller(self, cookie: str) -> Caller:
        """Who is logged in with this cookie. Raises `Unauthorized`."""
        session = await self._session(cookie)
        now = self._clock()
        if session is None or session.ends_at <= now or session.seen_at + UNUSED <= now:
            raise Unauthorized("this browser is not logged in, or not any more; log in again")
        if now - session.seen_at >= TOUCH_INTERVAL:
            self._known.pop(session.digest, None)
            await self._store.touch_session(session.digest, now)
        if session.key_digest is None:
            return Caller(user_id=session.user_id, scopes=session.scopes)
        return await self._access.authenticate_digest(session.key_digest)

    async def end(self, cookie: str) -> None:
        self._known.pop(digest(cookie), None)
        await self._store.remove_session(digest(cookie))
        for listener in self._listeners:
            listener()

    async def _session(self, cookie: str) -> BrowserSession | None:
        if not cookie or len(cookie) > MAX_TOKEN:
            return None
        given, now = digest(cookie), self._clock()
        known = self._known.get(given)
        if known is not None and now - known[0] < CACHE_TTL:
            return known[1]
        session = await self._store.session(given)
        if session is not None:
            if len(self._known) >= CACHE_SIZE:
                self._known.clear()
            self._known[given] = (now, session)
        return session

    async def _begin(self, caller: Caller, key_digest: str | None) -> NewSession:
        now, cookie = self._clock(), secrets.token_urlsafe(32)
        await self._store.purge(now, now - UNUSED)
        session = BrowserSession(
            digest=digest(cookie),
            key_digest=key_digest,
            user_id=caller.user_id,
            scopes=caller.scopes,
            created_at=now,
            seen_at=now,
            ends_at=now + LONGEST,
        )
        await self._store.add_session(session)
        return NewSession(cookie, caller)
