"""The seam of forges, and the stores that repositories and the local forge keep their records in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from sandlot.platform.core.events import Event
from sandlot.platform.core.forges import (
    GitRemote,
    Issue,
    LocalPullRequest,
    PullComment,
    PullRequest,
    PullRequestChange,
    PullRequestSpec,
    PullRequestState,
    Repository,
    RepositoryFacts,
)
from sandlot.platform.core.ports import AggregateStore


class Forge(Protocol):
    """Everything raises `Unavailable` (later it may work), `ForgeRefused` (it says no), `NotFound`."""

    name: str
    has_pull_requests: bool

    async def describe(self, repository: Repository) -> RepositoryFacts:
        """What it knows of the repository; also says whether the token is good."""

    async def remote(self, repository: Repository, *, write: bool = False) -> GitRemote:
        """Where git reaches it, with a token that is made or looked up for this one operation."""

    async def open_pull_request(self, repository: Repository, spec: PullRequestSpec) -> PullRequest:
        """The open pull request of this head into this base: found, else created. Safe to repeat.

        Raises `NothingToMerge` if head has no commit that base lacks, `InvalidRequest` if a branch is missing.
        """

    async def pull_request(self, repository: Repository, number: int) -> PullRequest:
        """With its comments and checks."""

    async def update(self, repository: Repository, number: int, change: PullRequestChange) -> PullRequest:
        """Change what the caller names. Raises `Conflict` if its state does not allow it."""

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
        """Add a comment. One with the same `marker` is changed instead, so there is never a second one."""

    async def merge(self, repository: Repository, number: int, *, sha: str | None = None) -> PullRequest:
        """Merge it; nothing happens if it is merged. Raises `Conflict`, also if its head is no longer `sha`."""

    async def issue(self, repository: Repository, number: int) -> Issue: ...


@runtime_checkable
class ListsPullRequests(Protocol):
    """A forge that can list pull requests."""

    async def pull_requests(
        self, repository: Repository, state: PullRequestState | None = None, *, head: str | None = None
    ) -> Sequence[PullRequest]:
        """Newest first, without comments; at most a hundred."""


@runtime_checkable
class TellsAddresses(Protocol):
    """A forge that is told by the address of a repository."""

    def is_at(self, url: str) -> bool:
        """Whether the repository at this address is this forge's."""

    def speaks_for(self, url: str) -> bool:
        """Whether the server has an account of its own there, for repositories without a token."""


@runtime_checkable
class KnowsPeople(Protocol):
    """A forge where strangers may write, too."""

    async def may_command(self, repository: Repository, login: str) -> bool:
        """Whether what this account says may be told to an agent: it has write access, and is no bot."""


@runtime_checkable
class ReportsOnCommits(Protocol):
    """A forge that shows what others found out about a commit."""

    async def report_on(
        self, repository: Repository, sha: str, *, name: str, state: str, title: str, summary: str, url: str | None
    ) -> None:
        """`state` is pending, success, failure or error. The last report of a name counts."""


class RepositoryStore(AggregateStore[Repository], Protocol):
    async def by_name(self, name: str) -> Repository | None: ...

    async def all(self) -> Sequence[Repository]:
        """By name."""

    async def remove(self, repository: Repository, *events: Event) -> None:
        """With its pull requests and their comments."""


class PullRequestStore(AggregateStore[LocalPullRequest], Protocol):
    async def next_number(self, repository_id: str) -> int: ...

    async def by_number(self, repository_id: str, number: int) -> LocalPullRequest | None: ...

    async def query(
        self, repository_id: str, *, state: PullRequestState | None = None, head: str | None = None
    ) -> Sequence[LocalPullRequest]:
        """Newest first, at most a hundred."""


class CommentStore(Protocol):
    async def of(self, pull_id: str) -> Sequence[PullComment]:
        """Oldest first."""

    async def put(self, pull_id: str, comment: PullComment, *events: Event) -> PullComment:
        """Add it; one with the same marker gets the new body instead."""
