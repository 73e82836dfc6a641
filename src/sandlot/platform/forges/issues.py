"""Issues as tasks: which repository an issue's address belongs to, and what is asked for in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from sandlot.platform.core.errors import InvalidRequest
from sandlot.platform.core.forges import Issue, Repository
from sandlot.platform.core.model import Caller
from sandlot.platform.forges.repositories import Repositories
from sandlot.program import SANDLOT

_ISSUE = re.compile(r"/(?P<repository>.+?)/(?:-/)?issues/(?P<number>[1-9][0-9]{0,9})/?")
MAX_TITLE, MAX_PROMPT = 300, 150_000


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueAddress:
    """Where an issue is: the address of its repository, as `host/path` in small letters, and its number."""

    repository: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueRequest:
    """What a task is made of."""

    repository: str
    title: str
    prompt: str


def parse_issue_url(url: str) -> IssueAddress:
    parts = urlsplit(url)
    found = _ISSUE.fullmatch(parts.path)
    if parts.scheme not in ("https", "http") or not parts.hostname or found is None:
        raise InvalidRequest("this is not the address of an issue; one looks like https://github.com/you/app/issues/12")
    return IssueAddress(
        repository=_place(f"{parts.scheme}://{parts.netloc}/{found['repository']}"), number=int(found["number"])
    )


async def read_issue(repositories: Repositories, caller: Caller, url: str, name: str | None) -> IssueRequest:
    """Ask the forge of the repository that this issue belongs to. Raises `InvalidRequest` if none of the caller's is the one."""
    address = parse_issue_url(url)
    repository = await _repository(repositories, caller, address, name)
    issue = await repositories.forge(repository).issue(repository, address.number)
    return IssueRequest(repository=repository.name, title=_title(issue), prompt=_prompt(issue, url))


async def _repository(
    repositories: Repositories, caller: Caller, address: IssueAddress, name: str | None
) -> Repository:
    if name is not None:
        named = await repositories.get(caller, name)
        if named.url is not None and _place(named.url) != address.repository:
            raise InvalidRequest(
                f"this issue is of {address.repository}, and repository {name!r} is {_place(named.url)}"
            )
        return named
    for each in await repositories.list(caller):
        if each.url is not None and _place(each.url) == address.repository:
            return each
    raise InvalidRequest(
        f"no repository here is {address.repository}; add it: {SANDLOT} repo add https://{address.repository} --token-env GITHUB_TOKEN"
    )


def _place(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.netloc}{parts.path}".lower().rstrip("/").removesuffix(".git")


def _title(issue: Issue) -> str:
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in issue.title).split())
    return (line or f"Issue {issue.number}")[:MAX_TITLE]


def _prompt(issue: Issue, url: str) -> str:
    body = issue.body.replace("\x00", "").replace("\r\n", "\n").strip()
    cut = body if len(body) <= MAX_PROMPT else body[:MAX_PROMPT] + "\n\n(The issue is longer; this is its beginning.)"
    return "\n\n".join(part for part in (_title(issue), cut, f"This is issue {issue.number}: {url}") if part)
