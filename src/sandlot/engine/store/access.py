"""Teams and keys in the database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, func, insert, select, update

from sandlot.engine.core.errors import Conflict
from sandlot.engine.core.model import Key, State, Team
from sandlot.engine.store import records
from sandlot.engine.store.database import Database
from sandlot.engine.store.schema import (
    builds,
    egress_entries,
    egress_left_out,
    keys,
    sandboxes,
    secrets,
    teams,
    templates,
)


class SqlAccess:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_team(self, team: Team) -> None:
        async with self._database.write("add a team") as connection:
            same = select(teams.c.id).where(teams.c.name == team.name)
            if (await connection.execute(same)).first() is not None:
                raise Conflict(f"there is a team {team.name!r} already")
            await connection.execute(insert(teams), records.team_row(team))

    async def teams(self) -> Sequence[Team]:
        async with self._database.read("read teams") as connection:
            rows = await connection.execute(select(teams).order_by(teams.c.created_at, teams.c.id))
            return [records.team(row) for row in rows.mappings()]

    async def remove_team(self, team_id: str) -> bool:
        live = select(func.count()).where(sandboxes.c.team_id == team_id, sandboxes.c.state != State.ENDED.value)
        own = select(func.count()).where(templates.c.team_id == team_id)
        building = select(func.count()).where(builds.c.team_id == team_id, builds.c.finished_at.is_(None))
        async with self._database.write("remove a team") as connection:
            for query, what in ((live, "sandboxes"), (own, "templates and snapshots"), (building, "unfinished builds")):
                count = (await connection.execute(query)).scalar_one()
                if count:
                    raise Conflict(f"the team still has {what} ({count}); delete them with one of its keys first")
            for table in (keys, sandboxes, builds, secrets, egress_entries, egress_left_out):
                await connection.execute(delete(table).where(table.c.team_id == team_id))
            return (await connection.execute(delete(teams).where(teams.c.id == team_id))).rowcount == 1

    async def add_key(self, key: Key) -> None:
        async with self._database.write("add a key") as connection:
            await connection.execute(insert(keys), records.key_row(key))

    async def key_by_digest(self, digest: str) -> Key | None:
        async with self._database.read("look up a key") as connection:
            row = (await connection.execute(select(keys).where(keys.c.digest == digest))).mappings().one_or_none()
            return records.key(row) if row is not None else None

    async def keys(self, team_id: str | None = None) -> Sequence[Key]:
        query = select(keys).order_by(keys.c.created_at, keys.c.id)
        if team_id is not None:
            query = query.where(keys.c.team_id == team_id)
        async with self._database.read("read keys") as connection:
            return [records.key(row) for row in (await connection.execute(query)).mappings()]

    async def revoke_key(self, key_id: str, at: datetime) -> bool:
        """False if there is no such key, or it was revoked before."""
        change = update(keys).where(keys.c.id == key_id, keys.c.revoked_at.is_(None)).values(revoked_at=at)
        async with self._database.write("revoke a key") as connection:
            return (await connection.execute(change)).rowcount == 1

    async def touch_key(self, key_id: str, at: datetime) -> None:
        async with self._database.write("note the use of a key") as connection:
            await connection.execute(update(keys).where(keys.c.id == key_id).values(last_used_at=at))
