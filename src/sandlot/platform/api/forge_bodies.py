"""What callers send and get about repositories and pull requests."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from sandlot.platform.api.requests import Body, Identifier
from sandlot.platform.core.forges import (
    CheckStatus,
    ForgeKind,
    PullComment,
    PullRequest,
    PullRequestState,
    Repository,
)
from sandlot.platform.git.records import TaskDiff

Text = Annotated[str, Field(max_length=1 << 20, pattern=r"^[^\x00]*$")]


class CreateRepository(Body):
    name: Annotated[str, Field(min_length=1, max_length=100)]
    url: Annotated[str, Field(max_length=1000)] | None = Field(None, description="Left out: hosted by this server.")
    forge: ForgeKind | None = Field(None, description="Left out: told by the address.")
    token_env: Annotated[str, Field(max_length=128)] | None = Field(
        None, description="The server's environment variable with the token; for admins."
    )
    token: Annotated[str, Field(max_length=2000)] | None = None
    github_app: bool | None = Field(
        None, description="The server's GitHub App speaks for it; for admins. Left out: if there is one and no token."
    )
    default_branch: Annotated[str, Field(max_length=200)] | None = None
    empty: bool = Field(False, description="Hosted here: without a first commit, for a history of your own.")
    user_id: Identifier | None = Field(None, description="With an admin key: whose it is. Left out: everybody's.")


class OpenPullRequest(Body):
    title: Annotated[str, Field(min_length=1, max_length=500)]
    head: Annotated[str, Field(min_length=1, max_length=200)]
    base: Annotated[str, Field(max_length=200)] | None = None
    body: Text = ""
    draft: bool = False
    labels: list[Identifier] = Field(default_factory=list, max_length=50)


class MergePullRequest(Body):
    sha: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = Field(
        None, description="Merge only if the head is still at this commit."
    )


class AddComment(Body):
    body: Annotated[str, Field(min_length=1, max_length=1 << 20, pattern=r"^[^\x00]*$")]
    path: Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]+$")] | None = None
    line: Annotated[int, Field(ge=1, le=10_000_000)] | None = None


class RepositoryInfo(BaseModel):
    name: str
    forge: ForgeKind
    url: str | None
    default_branch: str
    web_url: str | None
    clone_url: str
    user_id: str | None
    created_at: datetime
    github_app: bool
    problem: str | None


class RepositoryList(BaseModel):
    repositories: list[RepositoryInfo]


class BranchInfo(BaseModel):
    name: str
    sha: str


class BranchList(BaseModel):
    branches: list[BranchInfo]


class PullCheckInfo(BaseModel):
    name: str
    status: CheckStatus
    url: str | None


class PullCommentInfo(BaseModel):
    id: int
    author: str
    body: str
    path: str | None
    line: int | None
    created_at: datetime


class PullFileInfo(BaseModel):
    path: str
    old_path: str | None
    status: str
    added: int
    removed: int
    binary: bool
    patch: str | None


class PullDiffInfo(BaseModel):
    base: str
    head: str
    files: list[PullFileInfo]
    truncated: bool


class PullRequestInfo(BaseModel):
    number: int
    title: str
    body: str
    state: PullRequestState
    draft: bool
    head: str
    base: str
    head_sha: str | None
    url: str
    author: str
    labels: list[str]
    mergeable: bool | None
    checks: list[PullCheckInfo]
    comments: list[PullCommentInfo]
    created_at: datetime
    merged_at: datetime | None
    merge_sha: str | None


class PullRequestList(BaseModel):
    pulls: list[PullRequestInfo]


def repository_info(repository: Repository, here: str) -> RepositoryInfo:
    """`here` is the address at which the caller reaches this server."""
    hosted = f"{here.rstrip('/')}/git/{repository.name}.git"
    return RepositoryInfo(
        name=repository.name,
        forge=repository.forge,
        url=repository.url,
        default_branch=repository.default_branch,
        web_url=repository.url,
        clone_url=repository.url or hosted,
        user_id=repository.user_id,
        created_at=repository.created_at,
        github_app=repository.github_app,
        problem=repository.problem,
    )


def comment_info(comment: PullComment) -> PullCommentInfo:
    return PullCommentInfo(
        id=comment.id,
        author=comment.author,
        body=comment.body,
        path=comment.path,
        line=comment.line,
        created_at=comment.created_at,
    )


def pull_request_info(pull: PullRequest, here: str) -> PullRequestInfo:
    return PullRequestInfo(
        number=pull.number,
        title=pull.title,
        body=pull.body,
        state=pull.state,
        draft=pull.draft,
        head=pull.head,
        base=pull.base,
        head_sha=pull.head_sha,
        url=here.rstrip("/") + pull.url if pull.url.startswith("/") else pull.url,
        author=pull.author,
        labels=list(pull.labels),
        mergeable=pull.mergeable,
        checks=[PullCheckInfo(name=each.name, status=each.status, url=each.url) for each in pull.checks],
        comments=[comment_info(each) for each in pull.comments],
        created_at=pull.created_at,
        merged_at=pull.merged_at,
        merge_sha=pull.merge_sha,
    )


def pull_diff_info(diff: TaskDiff) -> PullDiffInfo:
    files = [
        PullFileInfo(
            path=file.path,
            old_path=file.old_path,
            status=file.status,
            added=file.added,
            removed=file.removed,
            binary=file.binary,
            patch=file.patch,
        )
        for file in diff.files
    ]
    return PullDiffInfo(base=diff.base, head=diff.head, files=files, truncated=diff.truncated)
