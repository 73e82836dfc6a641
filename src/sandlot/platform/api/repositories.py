"""The routes of repositories and their pull requests."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request, Response

from sandlot.platform.api import forge_bodies as bodies
from sandlot.platform.api.deps import Deps, Given, Reader, Writer
from sandlot.platform.api.errors import PROBLEMS
from sandlot.platform.core.errors import InvalidRequest
from sandlot.platform.core.forges import (
    ForgeKind,
    PullRequestChange,
    PullRequestSpec,
    PullRequestState,
    Repository,
)
from sandlot.platform.core.model import Caller
from sandlot.platform.forges.ports import ListsPullRequests
from sandlot.platform.forges.repositories import NewRepository

router = APIRouter(prefix="/repositories", tags=["repositories"], responses=PROBLEMS)
Name = Annotated[str, Path(max_length=100)]
Number = Annotated[int, Path(ge=1, le=2_000_000_000)]


@router.post("", status_code=201)
async def add(body: bodies.CreateRepository, request: Request, deps: Given, caller: Writer) -> bodies.RepositoryInfo:
    """Add a repository by its address, or have one hosted here."""
    new = NewRepository(
        name=body.name,
        url=body.url,
        forge=body.forge,
        token_env=body.token_env,
        token=body.token,
        github_app=body.github_app,
        default_branch=body.default_branch,
        empty=body.empty,
        user_id=body.user_id,
    )
    return bodies.repository_info(await deps.repositories.add(caller, new), str(request.base_url))


@router.get("")
async def list_repositories(request: Request, deps: Given, caller: Reader) -> bodies.RepositoryList:
    """Yours, and those that are everybody's."""
    here = str(request.base_url)
    found = await deps.repositories.list(caller)
    return bodies.RepositoryList(repositories=[bodies.repository_info(each, here) for each in found])


@router.get("/{name}")
async def show(name: Name, request: Request, deps: Given, caller: Reader) -> bodies.RepositoryInfo:
    """One repository. Its token is never shown."""
    return bodies.repository_info(await deps.repositories.get(caller, name), str(request.base_url))


@router.delete("/{name}", status_code=204)
async def remove(name: Name, deps: Given, caller: Writer) -> Response:
    """Forget it. One that is hosted here is deleted with its pull requests."""
    await deps.repositories.remove(caller, name)
    return Response(status_code=204)


@router.get("/{name}/branches")
async def branches(name: Name, deps: Given, caller: Reader) -> bodies.BranchList:
    """Its branches, as they are now."""
    found = await deps.repositories.branches(caller, name)
    return bodies.BranchList(branches=[bodies.BranchInfo(name=each.name, sha=each.sha) for each in found])


@router.get("/{name}/pulls", tags=["pull requests"])
async def pulls(
    name: Name,
    request: Request,
    deps: Given,
    caller: Reader,
    state: Annotated[PullRequestState | None, Query()] = None,
) -> bodies.PullRequestList:
    """Its pull requests, newest first, at most a hundred, without comments."""
    repository = await deps.repositories.get(caller, name)
    forge = deps.repositories.forge(repository)
    if not isinstance(forge, ListsPullRequests):
        raise InvalidRequest(f"repository {name!r} is a plain remote: it has no pull requests")
    found = await forge.pull_requests(repository, state)
    here = str(request.base_url)
    return bodies.PullRequestList(pulls=[bodies.pull_request_info(each, here) for each in found])


@router.post("/{name}/pulls", status_code=201, tags=["pull requests"])
async def open_pull_request(
    name: Name, body: bodies.OpenPullRequest, request: Request, deps: Given, caller: Writer
) -> bodies.PullRequestInfo:
    """Open a pull request for a branch; the one that is open already is found."""
    repository = await deps.repositories.get(caller, name)
    spec = PullRequestSpec(
        title=body.title,
        head=body.head,
        base=body.base or repository.default_branch,
        body=body.body,
        draft=body.draft,
        labels=tuple(body.labels),
        author=caller.user_id or "admin",
    )
    made = await deps.repositories.forge(repository).open_pull_request(repository, spec)
    return bodies.pull_request_info(made, str(request.base_url))


@router.get("/{name}/pulls/{number}", tags=["pull requests"])
async def show_pull_request(
    name: Name, number: Number, request: Request, deps: Given, caller: Reader
) -> bodies.PullRequestInfo:
    """One pull request, with its checks and comments."""
    repository = await deps.repositories.get(caller, name)
    found = await deps.repositories.forge(repository).pull_request(repository, number)
    return bodies.pull_request_info(found, str(request.base_url))


@router.get("/{name}/pulls/{number}/diff", response_model=bodies.PullDiffInfo, tags=["pull requests"])
async def pull_request_diff(
    name: Name,
    number: Number,
    deps: Given,
    caller: Reader,
    format: Annotated[Literal["json", "patch"], Query()] = "json",
) -> bodies.PullDiffInfo | Response:
    """What it changes: by file, or as a patch that git applies."""
    repository = await _hosted(deps, caller, name)
    if format == "patch":
        return Response(await deps.local.patch(repository, number), media_type="text/x-patch")
    return bodies.pull_diff_info(await deps.local.diff(repository, number))


@router.post("/{name}/pulls/{number}/merge", tags=["pull requests"])
async def merge(
    name: Name, number: Number, body: bodies.MergePullRequest, request: Request, deps: Given, caller: Writer
) -> bodies.PullRequestInfo:
    """Merge it. 409 if it conflicts, is a draft, is closed, or its head has moved."""
    repository = await deps.repositories.get(caller, name)
    merged = await deps.repositories.forge(repository).merge(repository, number, sha=body.sha)
    return bodies.pull_request_info(merged, str(request.base_url))


@router.post("/{name}/pulls/{number}/close", tags=["pull requests"])
async def close(name: Name, number: Number, request: Request, deps: Given, caller: Writer) -> bodies.PullRequestInfo:
    """Close it without merging."""
    repository = await deps.repositories.get(caller, name)
    change = PullRequestChange(state=PullRequestState.CLOSED)
    closed = await deps.repositories.forge(repository).update(repository, number, change)
    return bodies.pull_request_info(closed, str(request.base_url))


@router.post("/{name}/pulls/{number}/comments", status_code=201, tags=["pull requests"])
async def comment(
    name: Name, number: Number, body: bodies.AddComment, deps: Given, caller: Writer
) -> bodies.PullCommentInfo:
    """Comment on it, or on a line of it."""
    repository = await deps.repositories.get(caller, name)
    added = await deps.repositories.forge(repository).comment(
        repository, number, body.body, author=caller.user_id or "admin", path=body.path, line=body.line
    )
    return bodies.comment_info(added)


async def _hosted(deps: Deps, caller: Caller, name: str) -> Repository:
    repository = await deps.repositories.get(caller, name)
    if repository.forge is not ForgeKind.LOCAL:
        raise InvalidRequest(f"repository {name!r} is not hosted here; look at the pull request there")
    return repository
