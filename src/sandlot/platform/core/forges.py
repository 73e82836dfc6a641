"""The nouns of forges: repositories, the way to one over git, pull requests with their comments, issues."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

REPOSITORY_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.|git\Z|lock\Z)){0,99}(?<!\.)")
_REFUSED = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|\Z)")


def is_branch_name(text: str) -> bool:
    """Whether git takes it as the name of a branch, and no command of git as an option."""
    if not text or len(text) > 200 or text == "@" or text[0] in "-/." or text[-1] in "/.":
        return False
    return not _REFUSED.search(text)


class ForgeKind(StrEnum):
    LOCAL = "local"  # hosted by this server
    GITHUB = "github"
    REMOTE = "remote"  # a repository at any URL: branches are pushed, there are no pull requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A repository that tasks may work on. Its id never changes hands: a new one of the same name has another."""

    id: str
    name: str
    forge: ForgeKind
    url: str | None  # None: hosted here
    default_branch: str
    created_at: datetime
    user_id: str | None = None  # None: everybody's
    token_env: str | None = None  # the environment variable of the server that holds the token
    token: str | None = field(default=None, repr=False)
    github_app: bool = False  # the server's GitHub App speaks for it
    problem: str | None = None
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryFacts:
    """What a forge says of a repository."""

    default_branch: str | None  # None: it has no branch yet
    web_url: str | None = None
    may_push: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GitRemote:
    """Where git reaches a repository, for one operation. `authorization` is a header's value and goes nowhere else."""

    url: str
    authorization: str | None = field(default=None, repr=False)

    @property
    def is_here(self) -> bool:
        """A directory of this server."""
        return self.url.startswith("/")


class PullRequestState(StrEnum):
    OPEN = "open"
    MERGED = "merged"
    CLOSED = "closed"


class CheckStatus(StrEnum):
    PENDING = "pending"
    SUCCESS = "success"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequestCheck:
    name: str
    status: CheckStatus
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequestSpec:
    """A pull request to open. `head` and `base` are branches of the same repository."""

    title: str
    head: str
    base: str
    body: str = ""
    draft: bool = False
    labels: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    author: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequestChange:
    """What to change of a pull request. None leaves it as it is. A merged one cannot be opened or closed."""

    title: str | None = None
    body: str | None = None
    draft: bool | None = None
    labels: tuple[str, ...] | None = None
    checks: tuple[PullRequestCheck, ...] | None = None  # only where the forge has no checks of its own
    state: PullRequestState | None = None  # open or closed


@dataclass(frozen=True, slots=True, kw_only=True)
class PullComment:
    """A remark on a pull request; with a path and a line if it is about one. `marker` finds it again."""

    id: int
    author: str
    body: str
    created_at: datetime
    path: str | None = None
    line: int | None = None
    side: str | None = None
    marker: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """A pull request as its forge has it."""

    number: int
    title: str
    state: PullRequestState
    head: str
    base: str
    url: str
    created_at: datetime
    body: str = ""
    draft: bool = False
    author: str = ""
    labels: tuple[str, ...] = ()
    head_sha: str | None = None
    merged_at: datetime | None = None
    merge_sha: str | None = None
    mergeable: bool | None = None  # None: not known yet
    is_fork: bool = False  # its head is in another repository
    checks: tuple[PullRequestCheck, ...] = ()
    comments: tuple[PullComment, ...] = ()

    @property
    def check_status(self) -> CheckStatus | None:
        """All checks as one."""
        found = {check.status for check in self.checks}
        worst = (CheckStatus.FAILURE, CheckStatus.PENDING, CheckStatus.SUCCESS)
        return next((status for status in worst if status in found), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPullRequest:
    """A pull request of a repository that is hosted here, as it is stored."""

    id: str
    repository_id: str
    number: int
    title: str
    state: PullRequestState
    head: str
    base: str
    created_at: datetime
    updated_at: datetime
    body: str = ""
    draft: bool = False
    author: str = ""
    labels: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    checks: tuple[PullRequestCheck, ...] = ()
    merged_at: datetime | None = None
    merge_sha: str | None = None
    base_sha: str | None = None  # both as they were when it was merged or closed
    head_sha: str | None = None
    revision: int = 0

    @property
    def open_key(self) -> str | None:
        """Unique in the store: one open pull request of a head into a base."""
        is_open = self.state is PullRequestState.OPEN
        return f"{self.repository_id}\n{self.head}\n{self.base}" if is_open else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """An issue that a task can be made from."""

    url: str
    number: int
    title: str
    body: str
    author: str
    state: str
    labels: tuple[str, ...] = ()


FORGE_TITLES: Mapping[ForgeKind, str] = {
    ForgeKind.LOCAL: "this server",
    ForgeKind.GITHUB: "GitHub",
    ForgeKind.REMOTE: "the remote",
}
