"""Templates in the database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, delete, func, insert, or_, select, update

from sandlot.engine.core.model import Sandbox, Template, built
from sandlot.engine.store import records
from sandlot.engine.store.database import Database
from sandlot.engine.store.schema import builds, tags, teams, templates

DEFAULT_TAG = "default"  # the template's own row is the build with this tag


class SqlTemplates:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, template: Template) -> None:
        values = records.template_row(template)
        async with self._database.write(f"store template {template.name!r}") as connection:
            changed = await connection.execute(update(templates).where(templates.c.id == template.id).values(values))
            if changed.rowcount == 0:
                await connection.execute(insert(templates), values)

    async def resolve(self, team_id: str | None, ref: str) -> Template | None:
        name, _, tag = ref.partition(":")
        async with self._database.read("look up a template") as connection:
            row = (await connection.execute(_named(team_id, name))).mappings().one_or_none()
            if row is None:
                return None
            template = records.template(row)
            if tag in ("", DEFAULT_TAG):
                return template
            tagged = (
                select(builds)
                .join(tags, tags.c.build_id == builds.c.id)
                .where(tags.c.template_id == template.id, tags.c.tag == tag)
            )
            build = (await connection.execute(tagged)).mappings().one_or_none()
            return built(template, records.build(build)) if build is not None else None

    async def of(self, sandbox: Sandbox) -> Template | None:
        found = select(templates).where(templates.c.id == sandbox.template_id)
        its_build = select(builds).where(builds.c.id == sandbox.build_id, builds.c.template_id == sandbox.template_id)
        async with self._database.read("look up the template of a sandbox") as connection:
            row = (await connection.execute(found)).mappings().one_or_none()
            build = (await connection.execute(its_build)).mappings().one_or_none()
        if row is None:
            return None
        template = records.template(row)
        return built(template, records.build(build)) if build is not None else template

    async def list(self, team_id: str | None) -> Sequence[Template]:
        query = (
            select(templates)
            .where(_visible_to(team_id), templates.c.source.is_(None))
            .order_by(templates.c.name, templates.c.id)
        )
        async with self._database.read("read templates") as connection:
            return [records.template(row) for row in (await connection.execute(query)).mappings()]

    async def snapshots(
        self,
        team_id: str | None,
        *,
        source: str | None = None,
        name: str | None = None,
        limit: int | None = None,
        after: tuple[datetime, str] | None = None,
    ) -> Sequence[Template]:
        query = (
            select(templates)
            .where(templates.c.source.is_not(None))
            .order_by(templates.c.created_at.desc(), templates.c.id.desc())
        )
        if team_id is not None:
            query = query.where(templates.c.team_id == team_id)
        if source is not None:
            query = query.where(templates.c.source == source)
        if name is not None:
            query = query.where(or_(templates.c.id == name, templates.c.name == name))
        if after is not None:
            at, last = templates.c.created_at, templates.c.id
            query = query.where(or_(at < after[0], and_(at == after[0], last < after[1])))
        async with self._database.read("read snapshots") as connection:
            return [records.template(row) for row in (await connection.execute(query.limit(limit))).mappings()]

    async def delete(self, template_id: str) -> bool:
        async with self._database.write("delete a template") as connection:
            return (await connection.execute(delete(templates).where(templates.c.id == template_id))).rowcount == 1

    async def spawned(self, template_id: str, at: datetime) -> None:
        last = templates.c.last_spawned_at
        change = (
            update(templates)
            .where(templates.c.id == template_id)
            .values(spawn_count=templates.c.spawn_count + 1, last_spawned_at=func.coalesce(case((last > at, last)), at))
        )
        async with self._database.write("count a sandbox of a template") as connection:
            await connection.execute(change)


def _visible_to(team_id: str | None) -> ColumnElement[bool]:
    shared = or_(templates.c.team_id.is_(None), templates.c.public.is_(True))
    return shared if team_id is None else or_(templates.c.team_id == team_id, shared)


def _named(team_id: str | None, ref: str) -> Select[Any]:
    """One template by id or name; `owner/name` has to be of that team.

    A bare name means the team's own template, a built-in one, or a public one of the first team, which makes the stock
    templates. Others' public ones have to be named with their team: nobody gets a stranger's by a name he did not choose.
    """
    namespace, _, name = ref.rpartition("/")
    owner = case((templates.c.team_id == team_id, 0), (templates.c.team_id.is_(None), 1), else_=2)
    query = (
        select(templates)
        .where(_visible_to(team_id), or_(templates.c.id == name, templates.c.name == name))
        .order_by(case((templates.c.id == name, 0), else_=1), owner, templates.c.created_at)
        .limit(1)
    )
    if not namespace:
        first = select(teams.c.id).order_by(teams.c.created_at, teams.c.id).limit(1).scalar_subquery()
        familiar = or_(templates.c.team_id == team_id, templates.c.team_id.is_(None), templates.c.team_id == first)
        query = query.where(or_(templates.c.id == name, familiar))
    else:
        owners = select(teams.c.id).where(or_(teams.c.id == namespace, teams.c.name == namespace))
        query = query.where(templates.c.team_id.in_(owners))
    return query
