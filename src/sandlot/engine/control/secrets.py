"""Secrets: made, given new values and deleted by their team; their values are looked up for requests that leave, and never shown."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace

from sandlot.engine.control.listing import decode_cursor, encode_cursor
from sandlot.engine.core.errors import Conflict, InvalidRequest, NoCapacity, NotFound
from sandlot.engine.core.ids import random_id
from sandlot.engine.core.model import Secret
from sandlot.engine.core.ports import Clock, SecretStore

log = logging.getLogger(__name__)

PREFIX = "sec_"
MOST = 1000  # secrets of one team
MAX_NAME, MAX_VALUE = 128, 16 << 10
MAX_ENTRIES, MAX_KEY, MAX_ENTRY, MAX_METADATA = 32, 128, 1024, 8192
_BAD_NAME = re.compile(r"[{}\x00-\x1f\x7f-\x9f]")
_BAD_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
Changed = Callable[[str, str], Awaitable[None]]  # a team's secret of this name has another value, or none


class Secrets:
    """Those of all teams; every call sees one team's. `on_change` is told before the caller is answered."""

    def __init__(self, store: SecretStore, clock: Clock, *, most: int = MOST) -> None:
        self._store, self._clock, self._most = store, clock, most
        self._listeners: list[Changed] = []

    def on_change(self, listener: Changed) -> None:
        self._listeners.append(listener)

    async def create(self, team_id: str, name: str, value: str, metadata: Mapping[str, str]) -> Secret:
        now = self._clock()
        secret = Secret(
            id=f"{PREFIX}{random_id()}",
            team_id=team_id,
            name=_checked_name(name),
            version=1,
            created_at=now,
            updated_at=now,
            metadata=_checked_metadata(metadata),
        )
        if not await self._store.add(secret, _checked_value(value), most=self._most):
            raise NoCapacity(f"the team has {self._most} secrets, and may not have more; delete one first")
        await self._tell(secret)
        return secret

    async def update(self, team_id: str, ref: str, value: str, metadata: Mapping[str, str] | None) -> Secret:
        """The value becomes the next version; the one before it is gone. `metadata` None: as it was."""
        old = await self.get(team_id, ref)
        kept = old.metadata if metadata is None else _checked_metadata(metadata)
        new = replace(old, version=old.version + 1, updated_at=self._clock(), metadata=kept)
        if not await self._store.replace(new, _checked_value(value)):
            raise Conflict(f"secret {old.name!r} was changed by somebody else at the same time; try again")
        await self._tell(new)
        return new

    async def get(self, team_id: str, ref: str) -> Secret:
        found = await self._store.find(team_id, _reference(ref))
        if found is None:
            raise NotFound(f"secret {ref[:80]!r} was not found")
        return found

    async def page(self, team_id: str, *, limit: int, token: str | None) -> tuple[Sequence[Secret], str | None]:
        """Oldest first, and the token that leads to more."""
        after = None
        if token:
            at, rest = decode_cursor(token)
            after = (at, PREFIX + rest)
        found = await self._store.page(team_id, limit=limit + 1, after=after)
        if len(found) <= limit:
            return found, None
        last = found[limit - 1]
        return found[:limit], encode_cursor(last.created_at, last.id.removeprefix(PREFIX))

    async def delete(self, team_id: str, ref: str) -> None:
        """Requests that need it are refused from now on."""
        secret = await self.get(team_id, ref)
        if not await self._store.delete(secret.id):
            raise NotFound(f"secret {ref[:80]!r} was not found")
        await self._tell(secret)

    async def values(self, team_id: str, names: Collection[str]) -> Mapping[str, str]:
        """For what leaves a sandbox; those that do not exist are missing."""
        return await self._store.values(team_id, names) if names else {}

    async def used(self, team_id: str, names: Collection[str]) -> None:
        await self._store.touch(team_id, names, self._clock())

    async def _tell(self, secret: Secret) -> None:
        for listener in self._listeners:
            await listener(secret.team_id, secret.name)


def _reference(ref: str) -> str:
    return ref if ref.startswith(PREFIX) else ref.lower()


def _checked_name(name: str) -> str:
    if not name or len(name) > MAX_NAME or _BAD_NAME.search(name) or name != name.strip():
        raise InvalidRequest(
            f"a secret's name has 1 to {MAX_NAME} characters, no {{, }} or control characters, and no space at its ends"
        )
    if name.lower().startswith(PREFIX):
        raise InvalidRequest(f"a secret's name must not begin with {PREFIX}: ids of secrets do")
    return name.lower()


def _checked_value(value: str) -> str:
    if not value or len(value.encode()) > MAX_VALUE:
        raise InvalidRequest(f"a secret's value has 1 to {MAX_VALUE} bytes")
    if _BAD_VALUE.search(value):
        raise InvalidRequest(
            "a secret's value must have no line breaks or control characters: it becomes part of a header"
        )
    return value


def _checked_metadata(metadata: Mapping[str, str]) -> Mapping[str, str]:
    sizes = [(len(key.encode()), len(value.encode())) for key, value in metadata.items()]
    if (
        len(sizes) > MAX_ENTRIES
        or any(not 0 < key <= MAX_KEY or value > MAX_ENTRY for key, value in sizes)
        or sum(key + value for key, value in sizes) > MAX_METADATA
    ):
        raise InvalidRequest(
            f"a secret's metadata has at most {MAX_ENTRIES} entries, keys of 1 to {MAX_KEY} bytes, values of up to "
            f"{MAX_ENTRY} bytes, and {MAX_METADATA} bytes in all"
        )
    return dict(metadata)
