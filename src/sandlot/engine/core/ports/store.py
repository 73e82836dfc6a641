"""The stores: one small protocol for each kind of record."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from sandlot.engine.core.model import (
    Build,
    BuildStatus,
    EgressEntry,
    Key,
    LifecycleMark,
    LogEntry,
    Sandbox,
    Secret,
    State,
    Tag,
    Team,
    Template,
    Usage,
)


class SandboxStore(Protocol):
    async def add(self, sandbox: Sandbox, *, most: int | None = None, counting: Collection[State] = ()) -> bool:
        """False, and nothing is written, if `most` rows are in the states that count.

        Raises `Conflict` if the id, or the team's idempotency key, is taken.
        """

    async def get(self, sandbox_id: str) -> Sandbox | None: ...

    async def by_idempotency_key(self, team_id: str, key: str) -> Sandbox | None: ...

    async def swap(self, old: Sandbox, new: Sandbox) -> Sandbox:
        """Write `new` if the row still has `old.revision`; return it with the next revision. Raises `Conflict` if it moved on."""

    async def query(
        self,
        *,
        team_id: str | None = None,
        states: Collection[State] | None = None,
        metadata: Mapping[str, str] | None = None,
        template: str | None = None,  # id or name
        started_after: datetime | None = None,
        descending: bool = True,
        limit: int | None = None,
        after: tuple[datetime, str] | None = None,  # (started_at, id) of the last row already seen
    ) -> Sequence[Sandbox]: ...

    async def count(self, *, team_id: str | None = None, states: Collection[State] | None = None) -> int: ...

    async def expired(self, now: datetime, limit: int = 100) -> Sequence[Sandbox]:
        """Running sandboxes whose deadline has passed, oldest first."""

    async def purge(self, ended_before: datetime) -> int:
        """Delete rows that ended before; return how many."""


class HistoryStore(Protocol):
    """What sandboxes used and went through; of ended ones for as long as their rows are kept."""

    async def add(self, samples: Sequence[tuple[str, Usage]]) -> None: ...

    async def samples(self, sandbox_id: str, since: datetime | None, until: datetime | None) -> Sequence[Usage]:
        """Oldest first; the older, the coarser."""

    async def roll_up(self, now: datetime) -> None:
        """Make old samples coarser, and forget the oldest."""

    async def marks(self, sandbox_id: str) -> Sequence[LifecycleMark]:
        """Oldest first."""

    async def forks(self, sandbox_id: str) -> Sequence[Sandbox]:
        """Sandboxes that began with this one's state, in any state; oldest first."""

    async def ended(self, team_id: str, *, since: datetime | None, limit: int) -> Sequence[Sandbox]:
        """Newest first."""


class TemplateStore(Protocol):
    async def put(self, template: Template) -> None:
        """Add, or replace the one with the same id."""

    async def resolve(self, team_id: str | None, ref: str) -> Template | None:
        """By id, or by name; a team's own before a built-in or public one. `name:tag` is the build with that tag."""

    async def of(self, sandbox: Sandbox) -> Template | None:
        """The template of a sandbox as the build was that the sandbox was made from; its layers may be gone by now."""

    async def list(self, team_id: str | None) -> Sequence[Template]:
        """Templates a team sees; no snapshots."""

    async def snapshots(
        self,
        team_id: str | None,
        *,
        source: str | None = None,
        name: str | None = None,  # id or name
        limit: int | None = None,
        after: tuple[datetime, str] | None = None,  # (created_at, id) of the last one already seen
    ) -> Sequence[Template]:
        """Snapshots, newest first."""

    async def delete(self, template_id: str) -> bool: ...

    async def spawned(self, template_id: str, at: datetime) -> None:
        """Count one more sandbox from this template."""


class AccessStore(Protocol):
    async def add_team(self, team: Team) -> None:
        """Raises `Conflict` if the id or the name is taken."""

    async def teams(self) -> Sequence[Team]:
        """Oldest first."""

    async def remove_team(self, team_id: str) -> bool:
        """With its keys, its builds and the records of ended sandboxes. Raises `Conflict` while it has more than that."""

    async def add_key(self, key: Key) -> None: ...

    async def key_by_digest(self, digest: str) -> Key | None: ...

    async def keys(self, team_id: str | None = None) -> Sequence[Key]: ...

    async def revoke_key(self, key_id: str, at: datetime) -> bool: ...

    async def touch_key(self, key_id: str, at: datetime) -> None: ...


class BuildStore(Protocol):
    async def add(self, build: Build) -> None:
        """Raises `Conflict` if the id is taken."""

    async def swap(self, old: Build, new: Build) -> Build:
        """Write `new` if the row still has `old.revision`; return it with the next revision. Raises `Conflict` if it moved on."""

    async def get(self, build_id: str) -> Build | None: ...

    async def query(
        self, *, template_id: str | None = None, statuses: Collection[BuildStatus] | None = None
    ) -> Sequence[Build]:
        """Newest first."""

    async def forget(self, template_id: str) -> None:
        """Delete the builds of a template, with their logs and tags."""

    async def log(self, build_id: str, first: int, entries: Sequence[LogEntry]) -> None:
        """Add lines, the first of which has this number (from 0)."""

    async def logs(self, build_id: str, *, offset: int, limit: int) -> Sequence[LogEntry]: ...


class TagStore(Protocol):
    async def assign(self, tags: Sequence[Tag]) -> None:
        """Add, or move to another build."""

    async def remove(self, template_id: str, tags: Collection[str]) -> int: ...

    async def list(self, template_id: str) -> Sequence[Tag]:
        """By name of the tag."""


class SecretStore(Protocol):
    """Values go in sealed, and come out for `values` alone."""

    async def add(self, secret: Secret, value: str, *, most: int) -> bool:
        """False, and nothing is written, if the team has `most` secrets. Raises `Conflict` if it has one of this name."""

    async def find(self, team_id: str, ref: str) -> Secret | None:
        """By id or name."""

    async def page(
        self, team_id: str, *, limit: int | None = None, after: tuple[datetime, str] | None = None
    ) -> Sequence[Secret]:
        """Oldest first. `after`: (created_at, id) of the last one already seen."""

    async def replace(self, secret: Secret, value: str) -> bool:
        """Write the next version; False if the row does not have the version before it."""

    async def delete(self, secret_id: str) -> bool: ...

    async def values(self, team_id: str, names: Collection[str]) -> Mapping[str, str]:
        """The values of those that exist, by name."""

    async def touch(self, team_id: str, names: Collection[str], at: datetime) -> None:
        """Note that they were used."""


class EgressStore(Protocol):
    """What left sandboxes; so many rows for each, and the number of connections that had no room."""

    async def add(
        self, team_id: str, sandbox_id: str, entries: Sequence[EgressEntry], left_out: int, at: datetime
    ) -> None: ...

    async def page(
        self, team_id: str, sandbox_id: str, *, after: int, limit: int
    ) -> tuple[Sequence[tuple[int, EgressEntry]], int]:
        """Entries behind a number, with their numbers, oldest first; and how many connections have none."""

    async def purge(self, before: datetime) -> int: ...
