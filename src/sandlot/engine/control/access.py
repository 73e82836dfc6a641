"""Access: teams and their API keys. Secrets are shown once and kept only as digests."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandlot.engine.core.errors import Conflict, InvalidRequest, NotFound, Unauthorized
from sandlot.engine.core.model import Key, Team
from sandlot.engine.core.ports import AccessStore, Clock
from sandlot.program import SANDLOT

KEY_PREFIX = "e2b_"  # what E2B's SDKs of the older generation insist on, followed by hex digits
CACHE_TTL = timedelta(seconds=5)  # how long a key revoked by another process may still work
CACHE_SIZE = 1024
TOUCH_INTERVAL = timedelta(minutes=1)
MAX_SECRET_LENGTH = 512
MAX_NAME_LENGTH = 128
_TEAM_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who is asking: a valid key and the team it belongs to."""

    team: Team
    key: Key


class Access:
    def __init__(self, *, store: AccessStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._callers: dict[str, tuple[datetime, Caller]] = {}  # by digest
        self._touched: dict[str, datetime] = {}  # by key id

    async def ensure_first_team(self, name: str = "default") -> Team:
        """The first team there is; made if there is none. Safe to call at every start."""
        teams = await self._store.teams()
        if teams:
            return teams[0]
        team = Team(id=f"team_{secrets.token_hex(8)}", name=name, created_at=self._clock())
        await self._store.add_team(team)
        return team

    async def create_team(self, name: str) -> Team:
        """A team of its own name: other teams reach its public templates by it. Raises `Conflict` if it is taken."""
        if not _TEAM_NAME.fullmatch(name):
            raise InvalidRequest(
                f"{name[:80]!r} cannot name a team: use 1 to 63 lower-case letters, digits and '-', the first not '-'"
            )
        await self.ensure_first_team()  # the first is the operator's, whoever comes first
        team = Team(id=f"team_{secrets.token_hex(8)}", name=name, created_at=self._clock())
        await self._store.add_team(team)
        return team

    async def teams(self) -> Sequence[Team]:
        """Oldest first."""
        return await self._store.teams()

    async def team(self, ref: str) -> Team:
        """By id or name. Raises `NotFound`."""
        for team in await self._store.teams():
            if ref in (team.id, team.name):
                return team
        raise NotFound(f"there is no team {ref!r}; `{SANDLOT} team list` shows those there are")

    async def remove_team(self, ref: str) -> Team:
        """End a team and its keys. Raises `Conflict` while it has sandboxes or templates."""
        team = await self.team(ref)
        if team == await self.ensure_first_team():
            raise Conflict(f"{team.name!r} is the first team, the operator's own; it cannot be deleted")
        await self._store.remove_team(team.id)
        self._callers = {d: kept for d, kept in self._callers.items() if kept[1].team.id != team.id}
        return team

    async def create_key(self, team_id: str, name: str) -> tuple[Key, str]:
        """A new key, and its secret, which nobody can look up again."""
        if not name.strip() or len(name) > MAX_NAME_LENGTH:
            raise InvalidRequest(f"could not create a key: its name must have 1 to {MAX_NAME_LENGTH} characters")
        secret = KEY_PREFIX + secrets.token_hex(20)
        key = Key(
            id=f"key_{secrets.token_hex(8)}",
            team_id=team_id,
            name=name,
            digest=digest(secret),
            hint=f"{secret[:8]}…{secret[-2:]}",
            created_at=self._clock(),
        )
        await self._store.add_key(key)
        return key, secret

    async def keys(self, team_id: str | None = None) -> Sequence[Key]:
        return await self._store.keys(team_id)

    async def revoke(self, key_id: str, team_id: str | None = None) -> None:
        """Make a key invalid at once. `team_id` limits it to that team's keys. Raises `NotFound`."""
        owned = any(key.id == key_id for key in await self._store.keys(team_id))
        if not owned or not await self._store.revoke_key(key_id, self._clock()):
            raise NotFound(f"key {key_id!r} not found, or already revoked; `{SANDLOT} key list` shows the valid ones")
        self._callers = {d: kept for d, kept in self._callers.items() if kept[1].key.id != key_id}

    async def authenticate(self, secret: str | None) -> Caller:
        """Who holds this secret. Raises `Unauthorized`.

        The lookup is by digest, so its timing says nothing about how much of a guess was right.
        """
        if not secret:
            raise Unauthorized(f"no API key: send it in the X-API-KEY header (`{SANDLOT} env` sets E2B_API_KEY)")
        if len(secret) > MAX_SECRET_LENGTH:
            raise Unauthorized(f"the API key is not valid; `{SANDLOT} env` prints one that is")
        caller = await self._caller(digest(secret))
        await self._touch(caller.key)
        return caller

    async def _caller(self, key_digest: str) -> Caller:
        now = self._clock()
        cached = self._callers.get(key_digest)
        if cached is not None and now - cached[0] < CACHE_TTL:
            return cached[1]
        key = await self._store.key_by_digest(key_digest)
        if key is None or key.revoked_at is not None:
            self._callers.pop(key_digest, None)
            raise Unauthorized(f"the API key is unknown or revoked; `{SANDLOT} env` prints one that is valid")
        team = next(team for team in await self._store.teams() if team.id == key.team_id)
        caller = Caller(team=team, key=key)
        if len(self._callers) >= CACHE_SIZE:
            self._callers.clear()
        self._callers[key_digest] = (now, caller)
        return caller

    async def _touch(self, key: Key) -> None:
        now = self._clock()
        last = self._touched.get(key.id) or key.last_used_at
        if last is None or now - last >= TOUCH_INTERVAL:
            self._touched[key.id] = now  # before the write: requests at the same moment write once
            await self._store.touch_key(key.id, now)


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
