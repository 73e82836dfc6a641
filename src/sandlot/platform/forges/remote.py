"""The forge that is none: a repository at any URL, where branches are pushed and no pull requests are."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping

from sandlot.platform.core.errors import ForgeRefused, InvalidRequest
from sandlot.platform.core.forges import (
    GitRemote,
    Issue,
    PullComment,
    PullRequest,
    PullRequestChange,
    PullRequestSpec,
    Repository,
    RepositoryFacts,
)
from sandlot.platform.git.commands import Git


def token_of(repository: Repository, environment: Mapping[str, str] | None = None) -> str | None:
    """The repository's own token, looked up anew each time: a variable of the server may have changed."""
    if repository.token_env is None:
        return repository.token
    token = (os.environ if environment is None else environment).get(repository.token_env)
    if not token:
        raise ForgeRefused(
            f"the token of repository {repository.name!r} should be in the environment variable {repository.token_env} "
            "of the server, which is not set; set it and start the server again"
        )
    return token


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class RemoteForge:
    name = "remote"
    has_pull_requests = False

    def __init__(self, git: Git) -> None:
        self._git = git

    async def describe(self, repository: Repository) -> RepositoryFacts:
        remote = await self.remote(repository)
        doing = f"look at repository {repository.name!r}"
        arguments = ("ls-remote", "--symref", "--end-of-options", remote.url, "HEAD")
        listed = await self._git.transfer(*arguments, at=None, remote=remote, doing=doing)
        first = listed.text.partition("\n")[0]
        branch = first.removeprefix("ref: refs/heads/").partition("\t")[0] if first.startswith("ref: ") else None
        return RepositoryFacts(default_branch=branch, web_url=repository.url)

    async def remote(self, repository: Repository, *, write: bool = False) -> GitRemote:
        assert repository.url is not None
        token = token_of(repository)
        return GitRemote(url=repository.url, authorization=basic("x-access-token", token) if token else None)

    async def open_pull_request(self, repository: Repository, spec: PullRequestSpec) -> PullRequest:
        raise _none(repository)

    async def pull_request(self, repository: Repository, number: int) -> PullRequest:
        raise _none(repository)

    async def update(self, repository: Repository, number: int, change: PullRequestChange) -> PullRequest:
        raise _none(repository)

    async def comment(
        self,
        repository: Repository,
        number: int,
        body: str,
        *,
        marker: str | None = None,
        author: str = "",
        path: str | None = None,
        line: int | None = None,
    ) -> PullComment:
        raise _none(repository)

    async def merge(self, repository: Repository, number: int, *, sha: str | None = None) -> PullRequest:
        raise _none(repository)

    async def issue(self, repository: Repository, number: int) -> Issue:
        raise _none(repository)


def _none(repository: Repository) -> InvalidRequest:
    return InvalidRequest(f"repository {repository.name!r} is a plain remote: it has no pull requests and no issues")
