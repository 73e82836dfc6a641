"""What a client gets back about repositories and pull requests."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryInfo:
    """`forge` is local, github or remote."""

    name: str
    forge: str
    url: str | None
    default_branch: str
    clone_url: str
    created_at: datetime
    web_url: str | None = None
    user_id: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchInfo:
    name: str
    sha: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PullCheck:
    """`status` is pending, success or failure."""

    name: str
    status: str
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PullComment:
    id: int
    author: str
    body: str
    created_at: datetime
    path: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequestInfo:
    """`state` is open, merged or closed."""

    number: int
    title: str
    body: str
    state: str
    draft: bool
    head: str
    base: str
    url: str
    author: str = ""
    head_sha: str | None = None
    merge_sha: str | None = None
    labels: tuple[str, ...] = ()
    mergeable: bool | None = None
    checks: tuple[PullCheck, ...] = ()
    comments: tuple[PullComment, ...] = ()
    created_at: datetime | None = None
    merged_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiff:
    """`status` is added, modified, deleted or renamed. `patch` is None if it is too long or not text."""

    path: str
    status: str
    added: int
    removed: int
    old_path: str | None = None
    binary: bool = False
    patch: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    base: str
    head: str
    files: tuple[FileDiff, ...]
    truncated: bool = False

    @property
    def patch(self) -> str:
        """All that is shown, as git writes it."""
        return "".join(file.patch or "" for file in self.files)
