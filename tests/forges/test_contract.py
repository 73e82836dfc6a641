"""What every forge does alike, run against each: the one that is embedded, and GitHub as the emulator plays it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.git.world import commit, repository, well
from tests.github.emulator import Emulator, running
from tests.github.state import EmulatedRepository

from sandlot.platform.core.errors import Conflict, InvalidRequest, NotFound, NothingToMerge
from sandlot.platform.core.forges import (
    CheckStatus,
    ForgeKind,
    GitRemote,
    PullRequestChange,
    PullRequestSpec,
    PullRequestState,
    Repository,
)
from sandlot.platform.events.log import EventLog
from sandlot.platform.forges.github import GitHubForge
from sandlot.platform.forges.github_accounts import GitHubAccounts
from sandlot.platform.forges.github_api import GitHubTiming
from sandlot.platform.forges.local import LocalForge
from sandlot.platform.forges.ports import Forge, ListsPullRequests
from sandlot.platform.git.service import GitService
from sandlot.platform.store import Database, SqlEvents, SqlPullComments, SqlPullRequests, SqlRepositories
from sandlot.wiring.clock import now

SPEC = PullRequestSpec(title="Add a file", head="topic", base="main", body="Because.", labels=("a", "b"))


class ForgeWorld(ABC):
    """A forge with a repository that has one commit on main, and somebody who pushes to it."""

    forge: Forge
    git: GitService
    repository: Repository

    def __init__(self, place: Path) -> None:
        self.place = place

    @abstractmethod
    async def push(self, branch: str, files: dict[str, str]) -> str:
        """A commit on a branch that starts at main, or goes on."""

    @abstractmethod
    async def check(self, number: int, sha: str, name: str, status: CheckStatus) -> None:
        """Somebody's check of a pull request's head."""

    async def remote(self, asked: Repository, write: bool) -> GitRemote:
        return await self.forge.remote(asked, write=write)


class LocalWorld(ForgeWorld):
    async def open(self) -> None:
        database = Database.sqlite(self.place / "platform.db")
        await database.migrate()
        self.database = database
        events = EventLog(SqlEvents(database))
        await events.open()
        self.git = GitService(root=self.place / "git", secret="of the tests", remotes=self.remote)
        await self.git.open()
        stores = {"pulls": SqlPullRequests(database), "comments": SqlPullComments(database)}
        forge = LocalForge(git=self.git.git, mirrors=self.git.mirrors, events=events, clock=now, **stores)  # type: ignore[arg-type]
        self.forge, self.repository = forge, repository("app", url=None, forge=ForgeKind.LOCAL)
        await SqlRepositories(database).add(self.repository)
        await forge.begin(self.repository, {"README.md": "hello\n"})

    async def close(self) -> None:
        await self.database.close()

    async def push(self, branch: str, files: dict[str, str]) -> str:
        origin = (await self.forge.remote(self.repository, write=True)).url
        clone = self.place / f"clone-{branch}"
        if not clone.exists():
            await well("clone", "-q", origin, clone)
            await well("checkout", "-q", "-B", branch, at=clone)
        sha = ""
        for name, content in files.items():
            sha = await commit(clone, name, content)
        await well("push", "-q", "origin", f"HEAD:{branch}", at=clone)
        return sha

    async def check(self, number: int, sha: str, name: str, status: CheckStatus) -> None:
        from sandlot.platform.core.forges import PullRequestCheck

        change = PullRequestChange(checks=(PullRequestCheck(name=name, status=status),))
        await self.forge.update(self.repository, number, change)


class GitHubWorld(ForgeWorld):
    emulator: Emulator
    there: EmulatedRepository

    async def open(self) -> None:
        self.there = self.emulator.repository("ada/app", robot="write")
        url, token = f"{self.emulator.url}/ada/app", self.emulator.token("robot")
        self.repository = repository("app", url=url, forge=ForgeKind.GITHUB, token=token)
        timing = GitHubTiming(request_s=5, patience_s=3, pause_s=0.01)
        self.accounts = GitHubAccounts(app=None, clock=now, timing=timing)
        self.forge = GitHubForge(self.accounts)
        self.git = GitService(root=self.place / "git", secret="of the tests", remotes=self.remote)
        await self.git.open()

    async def close(self) -> None:
        await self.accounts.close()

    async def push(self, branch: str, files: dict[str, str]) -> str:
        return self.emulator.commit(self.there, branch, files)

    async def check(self, number: int, sha: str, name: str, status: CheckStatus) -> None:
        self.emulator.check(self.there, sha, name, None if status is CheckStatus.PENDING else status.value)


@pytest.fixture(params=["local", "github"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ForgeWorld]:
    if request.param == "local":
        local = LocalWorld(tmp_path)
        await local.open()
        yield local
        await local.close()
        return
    with running(tmp_path / "github") as emulator:
        github = GitHubWorld(tmp_path)
        github.emulator = emulator
        await github.open()
        yield github
        await github.close()


async def test_a_repository_is_described(world: ForgeWorld) -> None:
    facts = await world.forge.describe(world.repository)
    assert (facts.default_branch, facts.may_push) == ("main", True)


async def test_a_pull_request_is_opened_and_shown(world: ForgeWorld) -> None:
    sha = await world.push("topic", {"file.txt": "new\n"})
    opened = await world.forge.open_pull_request(world.repository, SPEC)
    assert (opened.title, opened.body, opened.state) == ("Add a file", "Because.", PullRequestState.OPEN)
    assert (opened.head, opened.base, opened.head_sha, opened.draft) == ("topic", "main", sha, False)
    assert opened.labels == ("a", "b") and opened.mergeable is True and not opened.is_fork
    assert str(opened.number) in opened.url
    assert await world.forge.pull_request(world.repository, opened.number) == opened


async def test_opening_it_again_finds_it(world: ForgeWorld) -> None:
    await world.push("topic", {"file.txt": "new\n"})
    first = await world.forge.open_pull_request(world.repository, SPEC)
    again = await world.forge.open_pull_request(world.repository, replace(SPEC, title="Another title"))
    assert (again.number, again.title) == (first.number, "Add a file")
    opening = [world.forge.open_pull_request(world.repository, SPEC) for _ in range(6)]
    assert {each.number for each in await asyncio.gather(*opening)} == {first.number}
    assert isinstance(world.forge, ListsPullRequests)
    assert [each.number for each in await world.forge.pull_requests(world.repository, head="topic")] == [first.number]


async def test_many_that_open_at_once_open_one(world: ForgeWorld) -> None:
    await world.push("topic", {"file.txt": "new\n"})
    opening = [world.forge.open_pull_request(world.repository, SPEC) for _ in range(6)]
    assert len({each.number for each in await asyncio.gather(*opening)}) == 1


async def test_what_makes_no_pull_request_is_said(world: ForgeWorld) -> None:
    with pytest.raises(InvalidRequest, match="no branch 'topic'"):
        await world.forge.open_pull_request(world.repository, SPEC)
    await world.push("topic", {"file.txt": "new\n"})
    with pytest.raises(InvalidRequest, match="no branch 'gone'"):
        await world.forge.open_pull_request(world.repository, replace(SPEC, base="gone"))
    with pytest.raises(NothingToMerge):
        await world.forge.open_pull_request(world.repository, replace(SPEC, head="main"))
    with pytest.raises(NotFound):
        await world.forge.pull_request(world.repository, 77)


async def test_it_is_changed(world: ForgeWorld) -> None:
    await world.push("topic", {"file.txt": "new\n"})
    number = (await world.forge.open_pull_request(world.repository, replace(SPEC, draft=True))).number
    with pytest.raises(Conflict):
        await world.forge.merge(world.repository, number)
    change = PullRequestChange(title="Better", body="Really.", draft=False, labels=("c",))
    changed = await world.forge.update(world.repository, number, change)
    assert (changed.title, changed.body, changed.draft, changed.labels) == ("Better", "Really.", False, ("c",))
    closed = await world.forge.update(world.repository, number, PullRequestChange(state=PullRequestState.CLOSED))
    assert (closed.state, closed.title) == (PullRequestState.CLOSED, "Better")
    with pytest.raises(Conflict):
        await world.forge.merge(world.repository, number)
    opened = await world.forge.update(world.repository, number, PullRequestChange(state=PullRequestState.OPEN))
    assert opened.state is PullRequestState.OPEN
    draft = await world.forge.update(world.repository, number, PullRequestChange(draft=True))
    assert draft.draft is True


async def test_it_is_merged_once_and_only_at_the_commit_that_was_seen(world: ForgeWorld) -> None:
    sha = await world.push("topic", {"file.txt": "new\n"})
    number = (await world.forge.open_pull_request(world.repository, SPEC)).number
    with pytest.raises(Conflict):
        await world.forge.merge(world.repository, number, sha="0" * 40)
    merged = await world.forge.merge(world.repository, number, sha=sha)
    assert merged.state is PullRequestState.MERGED and merged.merged_at is not None and merged.merge_sha
    assert (await world.forge.merge(world.repository, number)).merge_sha == merged.merge_sha
    with pytest.raises(Conflict):
        await world.forge.update(world.repository, number, PullRequestChange(state=PullRequestState.OPEN))
    tips = {branch.name: branch.sha for branch in await world.git.branches(world.repository)}
    assert tips["main"] == merged.merge_sha


async def test_a_conflict_is_told(world: ForgeWorld) -> None:
    await world.push("topic", {"file.txt": "one\n"})
    await world.push("other", {"file.txt": "two\n"})
    first = await world.forge.open_pull_request(world.repository, SPEC)
    second = await world.forge.open_pull_request(world.repository, replace(SPEC, head="other"))
    await world.forge.merge(world.repository, first.number)
    assert (await world.forge.pull_request(world.repository, second.number)).mergeable is False
    with pytest.raises(Conflict):
        await world.forge.merge(world.repository, second.number)


async def test_comments_are_kept_and_those_with_a_marker_are_changed(world: ForgeWorld) -> None:
    await world.push("topic", {"file.txt": "new\n"})
    number = (await world.forge.open_pull_request(world.repository, SPEC)).number
    first = await world.forge.comment(world.repository, number, "At work", marker="task-t1")
    await world.forge.comment(world.repository, number, "Why?", path="file.txt", line=1)
    again = await world.forge.comment(world.repository, number, "Done", marker="task-t1")
    assert (again.id, again.body, again.marker) == (first.id, "Done", "task-t1")
    await world.forge.comment(world.repository, number, "Other", marker="task-t2")
    found = (await world.forge.pull_request(world.repository, number)).comments
    assert sorted((each.body, each.path, each.line, each.marker) for each in found) == [
        ("Done", None, None, "task-t1"),
        ("Other", None, None, "task-t2"),
        ("Why?", "file.txt", 1, None),
    ]
    with pytest.raises(NotFound):
        await world.forge.comment(world.repository, 99, "Nobody there")


async def test_checks_are_told(world: ForgeWorld) -> None:
    sha = await world.push("topic", {"file.txt": "new\n"})
    number = (await world.forge.open_pull_request(world.repository, SPEC)).number
    assert (await world.forge.pull_request(world.repository, number)).check_status is None
    await world.check(number, sha, "tests", CheckStatus.FAILURE)
    found = await world.forge.pull_request(world.repository, number)
    assert [(each.name, each.status) for each in found.checks] == [("tests", CheckStatus.FAILURE)]
    assert found.check_status is CheckStatus.FAILURE


async def test_pull_requests_are_listed_by_state(world: ForgeWorld) -> None:
    assert isinstance(world.forge, ListsPullRequests)
    for name in ("one", "two", "three"):
        await world.push(name, {f"{name}.txt": "new\n"})
        await world.forge.open_pull_request(world.repository, replace(SPEC, head=name))
    await world.forge.merge(world.repository, 1)
    await world.forge.update(world.repository, 2, PullRequestChange(state=PullRequestState.CLOSED))

    async def listed(state: PullRequestState | None) -> list[int]:
        assert isinstance(world.forge, ListsPullRequests)
        return [each.number for each in await world.forge.pull_requests(world.repository, state)]

    assert await listed(None) == [3, 2, 1]
    assert [await listed(state) for state in PullRequestState] == [[3], [1], [2]]


async def test_a_tasks_branch_goes_there_and_becomes_a_pull_request(world: ForgeWorld) -> None:
    prepared = await world.git.prepare("t1", world.repository)
    clone = world.place / "task"
    await well("clone", "-q", prepared.path, clone)
    await well("checkout", "-qb", "task-t1", at=clone)
    sha = await commit(clone, "a.txt", "a\n")
    await well("push", "-q", "origin", "HEAD", at=clone)
    await world.git.forward("t1", world.repository)
    await world.git.forward("t1", world.repository)
    opened = await world.forge.open_pull_request(world.repository, replace(SPEC, head="task-t1"))
    assert opened.head_sha == sha
