"""Repositories, and the pull requests and comments of those that are hosted here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from sqlalchemy import ColumnElement, delete, func, insert, select, update

from sandlot.platform.core.errors import Conflict
from sandlot.platform.core.events import Event
from sandlot.platform.core.forges import (
    CheckStatus,
    ForgeKind,
    LocalPullRequest,
    PullComment,
    PullRequestCheck,
    PullRequestState,
    Repository,
)
from sandlot.platform.store.aggregates import AggregateRows, AggregateTable
from sandlot.platform.store.database import Database
from sandlot.platform.store.events import Route, append
from sandlot.platform.store.records import Row
from sandlot.platform.store.schema import pull_comments, pull_requests, repositories

MOST = 100


def _repository(row: Row) -> Repository:
    known = {field.name: row[field.name] for field in fields(Repository)}
    return Repository(**{**known, "forge": ForgeKind(row["forge"])})


def _repository_row(record: Repository) -> dict[str, Any]:
    return {**{field.name: getattr(record, field.name) for field in fields(record)}, "forge": record.forge.value}


def _pull_request(row: Row) -> LocalPullRequest:
    known = {field.name: row[field.name] for field in fields(LocalPullRequest)}
    checks = tuple(
        PullRequestCheck(name=each["name"], status=CheckStatus(each["status"]), url=each.get("url"))
        for each in row["checks"]
    )
    lists = {"labels": tuple(row["labels"]), "reviewers": tuple(row["reviewers"]), "checks": checks}
    return LocalPullRequest(**{**known, "state": PullRequestState(row["state"]), **lists})


def _pull_request_row(record: LocalPullRequest) -> dict[str, Any]:
    return {
        **{field.name: getattr(record, field.name) for field in fields(record)},
        "state": record.state.value,
        "labels": list(record.labels),
        "reviewers": list(record.reviewers),
        "checks": [{**asdict(check), "status": check.status.value} for check in record.checks],
        "open_key": record.open_key,
    }


REPOSITORIES = AggregateTable(noun="repository", table=repositories, read=_repository, write=_repository_row)
PULL_REQUESTS = AggregateTable(noun="pull request", table=pull_requests, read=_pull_request, write=_pull_request_row)


class SqlRepositories(AggregateRows[Repository]):
    def __init__(self, database: Database, route: Route = lambda _: ()) -> None:
        super().__init__(database, REPOSITORIES, route)

    async def by_name(self, name: str) -> Repository | None:
        return await self.one(repositories.c.name == name)

    async def all(self) -> Sequence[Repository]:
        return await self.many(select(repositories).order_by(repositories.c.name))

    async def remove(self, repository: Repository, *events: Event) -> None:
        async with self._database.write(f"remove repository {repository.name!r}") as connection:
            await connection.execute(delete(repositories).where(repositories.c.id == repository.id))
            await append(connection, self._route, events)


class SqlPullRequests(AggregateRows[LocalPullRequest]):
    def __init__(self, database: Database, route: Route = lambda _: ()) -> None:
        super().__init__(database, PULL_REQUESTS, route)

    async def next_number(self, repository_id: str) -> int:
        query = select(func.coalesce(func.max(pull_requests.c.number), 0))
        async with self._database.read("number a pull request") as connection:
            found = await connection.execute(query.where(pull_requests.c.repository_id == repository_id))
            return int(found.scalar_one()) + 1

    async def by_number(self, repository_id: str, number: int) -> LocalPullRequest | None:
        return await self.one((pull_requests.c.repository_id == repository_id) & (pull_requests.c.number == number))

    async def query(
        self, repository_id: str, *, state: PullRequestState | None = None, head: str | None = None
    ) -> Sequence[LocalPullRequest]:
        conditions: list[ColumnElement[bool]] = [pull_requests.c.repository_id == repository_id]
        if state is not None:
            conditions.append(pull_requests.c.state == state.value)
        if head is not None:
            conditions.append(pull_requests.c.head == head)
        query = select(pull_requests).where(*conditions).order_by(pull_requests.c.number.desc()).limit(MOST)
        return await self.many(query)


class SqlPullComments:
    def __init__(self, database: Database, route: Route = lambda _: ()) -> None:
        self._database, self._route = database, route

    async def of(self, pull_id: str) -> Sequence[PullComment]:
        query = select(pull_comments).where(pull_comments.c.pull_id == pull_id).order_by(pull_comments.c.id)
        async with self._database.read("list comments") as connection:
            rows = (await connection.execute(query)).mappings()
            return [PullComment(**{field.name: row[field.name] for field in fields(PullComment)}) for row in rows]

    async def put(self, pull_id: str, comment: PullComment, *events: Event) -> PullComment:
        values = {field.name: getattr(comment, field.name) for field in fields(comment) if field.name != "id"}
        try:
            async with self._database.write("comment on a pull request") as connection:
                number = await self._changed(connection, pull_id, comment)
                if number is None:
                    added = insert(pull_comments).returning(pull_comments.c.id)
                    number = (await connection.execute(added, {**values, "pull_id": pull_id})).scalar_one()
                await append(connection, self._route, events)
        except Conflict:  # another one with this marker came in between
            if comment.marker is None:
                raise
            async with self._database.write("comment on a pull request") as connection:
                number = await self._changed(connection, pull_id, comment)
                if number is None:
                    raise
                await append(connection, self._route, events)
        return replace(comment, id=number)

    async def _changed(self, connection: Any, pull_id: str, comment: PullComment) -> int | None:
        if comment.marker is None:
            return None
        same = (pull_comments.c.pull_id == pull_id) & (pull_comments.c.marker == comment.marker)
        change = update(pull_comments).where(same).values(body=comment.body).returning(pull_comments.c.id)
        found: int | None = (await connection.execute(change)).scalar_one_or_none()
        return found
