"""Keys of callers, and which users each may act for. Secrets are shown once and stored as digests."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta

from sandlot.platform.core.errors import Forbidden, InvalidRequest, NotFound, Unauthorized
from sandlot.platform.core.model import Caller, Scope, UserKey
from sandlot.platform.core.ports import Clock, KeyStore

PREFIX = "slp_"
CACHE_TTL = timedelta(seconds=5)  # how long a key revoked by another process may still work
CACHE_SIZE = 1024
TOUCH_INTERVAL = timedelta(minutes=1)
MAX_SECRET, MAX_NAME = 512, 128
ADMIN = Caller(user_id=None, scopes=frozenset(Scope))


class Access:
    """`admin_secret`: an additional admin key; the engine's first key, when both run in one server."""

    def __init__(self, *, store: KeyStore, clock: Clock, admin_secret: Callable[[], str | None] = lambda: None) -> None:
        self._store, self._clock, self._admin_secret = store, clock, admin_secret
        self._callers: dict[str, tuple[datetime, Caller]] = {}
        self._listeners: list[Callable[[], None]] = []

    def on_revoke(self, callback: Callable[[], None]) -> None:
        """Call back, at once and without waiting, when a key was revoked here."""
        self._listeners.append(callback)

    async def create_key(self, *, name: str, user_id: str | None, scopes: Collection[Scope]) -> tuple[UserKey, str]:
        """Create a key. Its secret cannot be looked up again."""
        if not name.strip() or len(name) > MAX_NAME:
            raise InvalidRequest(f"could not create a key: its name must have 1 to {MAX_NAME} characters")
        if not user_id and Scope.ADMIN not in scopes:
            raise InvalidRequest("could not create a key: say whose it is, or give it the scope admin")
        if not scopes:
            raise InvalidRequest("could not create a key: it would have no scope, so nothing would be allowed to it")
        secret = PREFIX + secrets.token_hex(24)
        key = UserKey(
            id=f"pkey_{secrets.token_hex(8)}",
            user_id=user_id or None,
            name=name,
            scopes=frozenset(scopes),
            digest=digest(secret),
            hint=f"{secret[:8]}…{secret[-2:]}",
            created_at=self._clock(),
        )
        await self._store.add(key)
        return key, secret

    async def keys(self) -> Sequence[UserKey]:
        return await self._store.keys()

    async def revoke(self, key_id: str) -> None:
        if not await self._store.revoke(key_id, self._clock()):
            raise NotFound(f"key {key_id!r} was not found, or is revoked already")
        self._callers.clear()
        for listener in self._listeners:
            listener()

    async def authenticate(self, secret: str | None) -> Caller:
        """The caller with this secret. Raises `Unauthorized`."""
        if not secret:
            raise Unauthorized("no key: send it in the X-API-KEY header, or as Authorization: Bearer")
        if len(secret) > MAX_SECRET:
            raise Unauthorized("the key is not valid")
        return await self.authenticate_digest(digest(secret))

    async def authenticate_digest(self, given: str) -> Caller:
        """The caller whose key has this digest: of a browser that logged in with it. Raises `Unauthorized`."""
        known = self._callers.get(given)
        if known is not None and self._clock() - known[0] < CACHE_TTL:
            return known[1]
        caller = await self._look_up(given)
        if len(self._callers) >= CACHE_SIZE:
            self._callers.clear()
        self._callers[given] = (self._clock(), caller)
        return caller

    async def _look_up(self, given: str) -> Caller:
        admin = self._admin_secret()
        if admin and hmac.compare_digest(given, digest(admin)):
            return ADMIN
        key = await self._store.by_digest(given)
        if key is None or key.revoked_at is not None:
            self._callers.pop(given, None)
            raise Unauthorized("the key is unknown or revoked")
        now = self._clock()
        if key.last_used_at is None or now - key.last_used_at >= TOUCH_INTERVAL:
            await self._store.touch(key.id, now)
        return Caller(user_id=key.user_id, scopes=key.scopes)


def require(caller: Caller, scope: Scope) -> None:
    if scope not in caller.scopes and not caller.is_admin:
        raise Forbidden(f"this key may not do that: it lacks the scope {scope.value!r}")


def acting_user(caller: Caller, user_id: str | None) -> str:
    """The user a request is made for. Raises `Forbidden`, `InvalidRequest`."""
    if caller.is_admin:
        chosen = user_id or caller.user_id
        if not chosen:
            raise InvalidRequest("this key belongs to no user: say which one is meant with user_id")
        return chosen
    if user_id is not None and user_id != caller.user_id:
        raise Forbidden("this key belongs to another user than user_id names")
    assert caller.user_id is not None  # keys without a user are admin keys
    return caller.user_id


def may_see(caller: Caller, owner: str, user_id: str | None = None) -> bool:
    """Whether this caller may see what belongs to `owner`; `user_id` is the user it acts for."""
    if user_id is not None and user_id != owner:
        return False
    return caller.is_admin or caller.user_id == owner


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
