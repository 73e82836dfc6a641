"""Repositories and their pull requests, for programs."""

from __future__ import annotations

import builtins
from typing import Any, Protocol
from urllib.parse import quote

from sandlot.client.decoding import decoded
from sandlot.client.forge_records import BranchInfo, Diff, PullComment, PullRequestInfo, RepositoryInfo


class Asks(Protocol):
    async def ask(self, method: str, path: str, **options: Any) -> Any: ...


class Repositories:
    """`client.repositories`."""

    def __init__(self, http: Asks) -> None:
        self._http = http

    async def create(
        self, name: str, *, default_branch: str | None = None, empty: bool = False, user_id: str | None = None
    ) -> RepositoryInfo:
        """One that the server hosts itself. `empty`: without a first commit."""
        body = {"name": name, "default_branch": default_branch, "empty": empty, "user_id": user_id}
        return await self._added(body)

    async def add(
        self,
        url: str,
        *,
        name: str | None = None,
        token: str | None = None,
        token_env: str | None = None,
        forge: str | None = None,
        default_branch: str | None = None,
        user_id: str | None = None,
    ) -> RepositoryInfo:
        """One that is elsewhere. `token_env` names a variable of the server."""
        chosen = name or url.rstrip("/").rsplit("/", 1)[-1].removesuffix(".git")
        body = {"name": chosen, "url": url, "token": token, "token_env": token_env, "forge": forge}
        return await self._added({**body, "default_branch": default_branch, "user_id": user_id})

    async def _added(self, body: dict[str, Any]) -> RepositoryInfo:
        return decoded(RepositoryInfo, await self._http.ask("POST", "/repositories", json=given(body)))

    async def list(self) -> builtins.list[RepositoryInfo]:
        answer = await self._http.ask("GET", "/repositories")
        return [decoded(RepositoryInfo, row) for row in answer["repositories"]]

    async def get(self, name: str) -> RepositoryInfo:
        return decoded(RepositoryInfo, await self._http.ask("GET", _path(name)))

    async def remove(self, name: str) -> None:
        """One that is hosted by the server is deleted, with its pull requests."""
        await self._http.ask("DELETE", _path(name))

    async def branches(self, name: str) -> builtins.list[BranchInfo]:
        answer = await self._http.ask("GET", f"{_path(name)}/branches")
        return [decoded(BranchInfo, row) for row in answer["branches"]]


class PullRequests:
    """`client.pull_requests`. The first argument is always the repository's name."""

    def __init__(self, http: Asks) -> None:
        self._http = http

    async def list(self, repository: str, *, state: str | None = None) -> builtins.list[PullRequestInfo]:
        """The newest first, at most a hundred, without comments."""
        answer = await self._http.ask("GET", f"{_path(repository)}/pulls", params=given({"state": state}))
        return [decoded(PullRequestInfo, row) for row in answer["pulls"]]

    async def open(
        self,
        repository: str,
        *,
        title: str,
        head: str,
        base: str | None = None,
        body: str = "",
        draft: bool = False,
        labels: tuple[str, ...] = (),
    ) -> PullRequestInfo:
        """The one that is open already is found."""
        said = {"title": title, "head": head, "base": base, "body": body, "draft": draft, "labels": [*labels]}
        return decoded(PullRequestInfo, await self._http.ask("POST", f"{_path(repository)}/pulls", json=given(said)))

    async def get(self, repository: str, number: int) -> PullRequestInfo:
        return decoded(PullRequestInfo, await self._http.ask("GET", _pull(repository, number)))

    async def diff(self, repository: str, number: int) -> Diff:
        return decoded(Diff, await self._http.ask("GET", f"{_pull(repository, number)}/diff"))

    async def merge(self, repository: str, number: int, *, sha: str | None = None) -> PullRequestInfo:
        """`sha`: only if its head is still there."""
        answer = await self._http.ask("POST", f"{_pull(repository, number)}/merge", json=given({"sha": sha}))
        return decoded(PullRequestInfo, answer)

    async def close(self, repository: str, number: int) -> PullRequestInfo:
        return decoded(PullRequestInfo, await self._http.ask("POST", f"{_pull(repository, number)}/close"))

    async def comment(
        self, repository: str, number: int, body: str, *, path: str | None = None, line: int | None = None
    ) -> PullComment:
        said = given({"body": body, "path": path, "line": line})
        return decoded(PullComment, await self._http.ask("POST", f"{_pull(repository, number)}/comments", json=said))


def given(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}


def _path(name: str) -> str:
    return f"/repositories/{quote(name, safe='')}"


def _pull(name: str, number: int) -> str:
    return f"{_path(name)}/pulls/{number}"
