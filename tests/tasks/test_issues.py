"""Tasks that are made from issues: whose issue it is, and what is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import httpx
import pytest
from tests.platform.fakes import ScriptedProvider
from tests.platform.world import Served, scripted

from sandlot.platform.core.errors import InvalidRequest, NotFound
from sandlot.platform.core.forges import ForgeKind, Issue, Repository
from sandlot.platform.core.model import Caller, Scope
from sandlot.platform.forges.issues import IssueAddress, parse_issue_url, read_issue
from sandlot.platform.forges.repositories import Repositories
from sandlot.wiring.clock import now

CALLER = Caller(user_id="ann", scopes=frozenset(Scope))
ISSUE = "https://GitHub.com/You/App/issues/12#issuecomment-3"


@dataclass
class OneRepository:
    """Repositories of which there is one, at a forge that has one issue."""

    url: str | None
    issue_record: Issue = field(
        default_factory=lambda: Issue(
            url=ISSUE, number=12, title="Say\thello \x1b[31m", body="Please.\r\nNow.\x00", author="bob", state="open"
        )
    )

    async def list(self, _: Caller) -> Sequence[Repository]:
        return [self._record]

    async def get(self, _: Caller, name: str) -> Repository:
        if name != "app":
            raise NotFound(f"there is no repository {name!r}")
        return self._record

    def forge(self, _: Repository) -> OneRepository:
        return self

    async def issue(self, _: Repository, number: int) -> Issue:
        assert number == 12
        return self.issue_record

    @property
    def _record(self) -> Repository:
        kind = ForgeKind.GITHUB if self.url else ForgeKind.LOCAL
        return Repository(id="r", name="app", forge=kind, url=self.url, default_branch="main", created_at=now())


def one(url: str | None) -> Repositories:
    return cast(Repositories, OneRepository(url))


@pytest.mark.parametrize("url", ["https://github.com/you/app.git", "https://github.com/You/app"])
async def test_the_repository_of_an_issue_is_found_by_its_address(url: str) -> None:
    found = await read_issue(one(url), CALLER, ISSUE, None)
    assert (found.repository, found.title) == ("app", "Say hello [31m")
    assert found.prompt == f"Say hello [31m\n\nPlease.\nNow.\n\nThis is issue 12: {ISSUE}"


async def test_an_issue_of_another_repository_is_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidRequest, match=r"repo add https://github\.com/you/app"):
        await read_issue(one("https://github.com/you/other"), CALLER, ISSUE, None)
    with pytest.raises(InvalidRequest, match=r"this issue is of github\.com/you/app"):
        await read_issue(one("https://github.com/you/other"), CALLER, ISSUE, "app")
    with pytest.raises(NotFound):
        await read_issue(one(None), CALLER, ISSUE, "nothere")


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/you/app/pull/1",
        "https://github.com/issues/1",
        "ftp://h/a/b/issues/1",
        "https://h/a/issues/x",
    ],
)
def test_what_is_no_issue_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="looks like"):
        parse_issue_url(url)


def test_addresses_of_other_forges_are_understood() -> None:
    wanted = IssueAddress(repository="git.example.org:8443/group/sub/app", number=7)
    assert parse_issue_url("https://git.example.org:8443/group/sub/app/-/issues/7") == wanted


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        Served(tmp_path, scripted(), {"scripted": ScriptedProvider()}) as served,
        served.http(await served.key("ann")) as client,
    ):
        await client.post("/repositories", json={"name": "app"})
        yield client


async def test_the_route_takes_an_issue_in_place_of_a_prompt(http: httpx.AsyncClient) -> None:
    for body, told in (
        ({}, "needs a repository and a prompt"),
        ({"prompt": "x"}, "needs a repository and a prompt"),
        ({"issue": ISSUE}, "repo add https://github.com/you/app"),
        ({"issue": ISSUE, "repository": "app"}, "there are no issues"),
    ):
        answer = await http.post("/tasks", json=body)
        assert answer.status_code == 400 and told in answer.json()["message"], answer.text
    said = {"issue": ISSUE, "repository": "app", "prompt": "Do it", "agent": "claude", "start": False}
    task = (await http.post("/tasks", json=said)).json()
    assert (task["issue"], task["title"]) == (ISSUE, "Do it")  # a link only: nobody is asked
