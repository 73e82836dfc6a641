"""GitHub as a forge, where it differs from others: rate limits, lost answers, the App and its tokens, what people's texts may do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.git.world import commit, repository, well
from tests.github.world import PERMISSIONS, SPEC, GitHubTestWorld, app_world, github_world, rsa_pair

from sandlot.platform.core.errors import ForgeRefused, InvalidRequest, NotFound, PlatformError, Unavailable
from sandlot.platform.core.forges import CheckStatus, ForgeKind, GitRemote, Repository
from sandlot.platform.forges.github import GitHubForge
from sandlot.platform.forges.github_accounts import GitHubAccounts, api_url, place_of
from sandlot.platform.git.service import GitService
from sandlot.wiring.clock import now

PULLS = "/repos/ada/app/pulls"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[GitHubTestWorld]:
    async with github_world(tmp_path) as made:
        yield made


# -- addresses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "api"),
    [
        ("https://github.com/ada/app", "https://api.github.com"),
        ("https://www.github.com/ada/app.git", "https://api.github.com"),
        ("https://GitHub.com/ada/app/", "https://api.github.com"),
        ("https://ada.ghe.com/ada/app", "https://api.ada.ghe.com"),
        ("https://git.example.org:8443/ada/app", "https://git.example.org:8443/api/v3"),
    ],
)
def test_the_api_is_found_by_the_address(url: str, api: str) -> None:
    place = place_of(url)
    assert (api_url(place.origin), place.full_name) == (api, "ada/app")


@pytest.mark.parametrize("path", ["", "/", "/ada", "/ada/app/pulls", "/ada/..", "/-/app", "/a%2fb/app", "/ada/a b"])
def test_addresses_of_no_repository_are_refused(path: str) -> None:
    with pytest.raises(InvalidRequest):
        place_of(f"https://github.com{path}")


# -- rate limits and faults ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["secondary", "primary", "500", "502", "reset", "garbage"])
async def test_a_short_trouble_is_sat_out(world: GitHubTestWorld, kind: str) -> None:
    world.emulator.fault("GET", "/repos/ada/app", kind)
    if kind == "garbage":  # not worth a second try by itself
        with pytest.raises(Unavailable, match="cannot be understood"):
            await world.forge.describe(world.repository)
    assert (await world.forge.describe(world.repository)).default_branch == "main"


@pytest.mark.parametrize(("kind", "least"), [("secondary", 100), ("primary", 100), ("untold", 55)])
async def test_a_long_limit_is_told_with_its_time_and_kept(world: GitHubTestWorld, kind: str, least: int) -> None:
    world.emulator.fault("GET", "/repos/ada/app", kind, seconds=120)
    with pytest.raises(Unavailable, match="rate limit") as refused:
        await world.forge.describe(world.repository)
    assert least <= refused.value.retry_after_s <= 122
    before = len(world.emulator.requests)
    with pytest.raises(Unavailable, match="rate limit"):
        await world.forge.pull_requests(world.repository)
    assert len(world.emulator.requests) == before  # GitHub is left alone until then


async def test_the_hours_budget_is_kept(world: GitHubTestWorld) -> None:
    world.emulator.limit = 3
    with pytest.raises(Unavailable, match="rate limit") as refused:
        for _ in range(3):
            await world.forge.issue(world.repository, world.emulator.issue(world.there, "t", "b", "ada").number)
            await world.forge.describe(world.repository)
    assert refused.value.retry_after_s > 3000


async def test_what_did_not_change_costs_nothing(world: GitHubTestWorld) -> None:
    await world.forge.describe(world.repository)
    used = world.emulator.used
    for _ in range(3):
        await world.forge.describe(world.repository)
    assert world.emulator.used == used
    assert [status for *_, status in world.emulator.requests[-2:]] == [304, 304]


@pytest.mark.parametrize("kind", ["500-after", "reset-after", "timeout-after", "502-after"])
async def test_a_lost_answer_makes_no_second_pull_request(world: GitHubTestWorld, kind: str) -> None:
    world.branch()
    world.emulator.fault("POST", PULLS, kind, seconds=1)
    opened = await world.forge.open_pull_request(world.repository, SPEC)
    assert (opened.number, world.pulls) == (1, 1)


@pytest.mark.parametrize("kind", ["500", "reset", "secondary"])
async def test_a_request_that_failed_may_be_made_again(world: GitHubTestWorld, kind: str) -> None:
    world.branch()
    world.emulator.fault("POST", PULLS, kind, seconds=60)
    with pytest.raises(Unavailable):
        await world.forge.open_pull_request(world.repository, SPEC)
    assert world.pulls == 0
    if kind != "secondary":
        assert (await world.forge.open_pull_request(world.repository, SPEC)).number == world.pulls == 1


async def test_a_token_that_is_no_good_is_told_without_showing_it(
    world: GitHubTestWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = replace(world.repository, token="ghp_wrongwrongwrongwrong")
    with pytest.raises(ForgeRefused, match="refuses the token") as refused:
        await world.forge.describe(wrong)
    await world.forge.describe(world.repository)
    shown = str(refused.value) + repr(world.repository) + repr(await world.forge.remote(world.repository))
    for secret in ("wrongwrong", world.token):
        assert secret not in shown + caplog.text


async def test_who_may_only_read_is_told_so(world: GitHubTestWorld) -> None:
    reading = replace(world.repository, token=world.emulator.token("bob"))
    assert (await world.forge.describe(reading)).may_push is False
    stranger = replace(world.repository, token=world.emulator.token("eve"))
    with pytest.raises(NotFound):
        await world.forge.describe(stranger)


async def test_a_repository_without_a_branch_is_told(world: GitHubTestWorld) -> None:
    world.there.default_branch = "trunk"
    assert (await world.forge.describe(world.repository)).default_branch is None


async def test_no_answer_leads_the_token_elsewhere(world: GitHubTestWorld, tmp_path: Path) -> None:
    """A link to the next page that names another host is not followed."""
    elsewhere = replace(world.repository, url=world.repository.url.replace("127.0.0.1", "localhost"))  # type: ignore[union-attr]
    world.branch()
    number = (await world.forge.open_pull_request(world.repository, SPEC)).number
    for text in range(150):
        await asyncio.to_thread(world.there.issues[number].comments.append, _said(world, str(text)))
    assert len((await world.forge.pull_request(world.repository, number)).comments) == 150
    with pytest.raises(ForgeRefused, match="gets no token"):  # the emulator's links say 127.0.0.1
        await world.forge.pull_request(elsewhere, number)


def _said(world: GitHubTestWorld, text: str, login: str = "eve") -> object:
    from tests.github.state import Comment, moment

    return Comment(world.emulator.number(), world.emulator.user(login), text, moment())


# -- what people write --------------------------------------------------------------------------------------------------


async def test_a_strangers_comment_with_our_marker_is_not_ours(world: GitHubTestWorld) -> None:
    world.branch()
    number = (await world.forge.open_pull_request(world.repository, SPEC)).number
    world.there.issues[number].comments.append(_said(world, "Mine\n\n<!-- sandlot:task-t1 -->"))  # type: ignore[arg-type]
    made = await world.forge.comment(world.repository, number, "Ours", marker="task-t1")
    again = await world.forge.comment(world.repository, number, "Changed", marker="task-t1")
    assert again.id == made.id and made.author == "robot"
    assert [each.body[:7] for each in world.there.issues[number].comments] == ["Mine\n\n<", "Changed"]


async def test_texts_that_are_too_long_are_cut(world: GitHubTestWorld) -> None:
    world.branch()
    spec = replace(SPEC, title="t" * 400, body="b" * 200_000)
    opened = await world.forge.open_pull_request(world.repository, spec)
    assert len(opened.title) == 250 and opened.body.endswith("(cut: it is too long)")
    await world.forge.comment(world.repository, opened.number, "c" * 200_000, marker="m")


async def test_a_line_that_is_not_part_of_the_change_gets_a_plain_comment(world: GitHubTestWorld) -> None:
    world.branch()
    number = (await world.forge.open_pull_request(world.repository, SPEC)).number
    made = await world.forge.comment(world.repository, number, "Here", path="README.md", line=1)
    assert made.path is None and "README.md" in made.body and "Here" in made.body


async def test_labels_and_reviewers_that_cannot_be_had_do_not_stop_it(world: GitHubTestWorld) -> None:
    world.branch()
    spec = replace(SPEC, labels=("bug",), reviewers=("bob", "robot"))
    await world.forge.open_pull_request(world.repository, spec)
    pull = world.there.pulls()[0]
    assert (pull.labels, [each.login for each in pull.reviewers]) == (["bug"], ["bob"])
    world.branch("other")
    world.emulator.fault("POST", r"/repos/ada/app/issues/2/labels", "403")
    await world.forge.open_pull_request(
        world.repository, replace(SPEC, head="other", labels=("x",), reviewers=("nobody",))
    )
    assert world.pulls == 2


async def test_a_plan_without_drafts_gets_a_plain_pull_request(world: GitHubTestWorld) -> None:
    world.there.has_drafts = False
    world.branch()
    assert (await world.forge.open_pull_request(world.repository, replace(SPEC, draft=True))).draft is False


async def test_a_repository_that_allows_only_squashing_is_merged_so(world: GitHubTestWorld) -> None:
    world.there.allow = ("squash",)
    world.branch()
    number = (await world.forge.open_pull_request(world.repository, SPEC)).number
    assert (await world.forge.merge(world.repository, number)).merged_at is not None


async def test_a_pull_request_of_a_fork_is_not_taken_for_ours(world: GitHubTestWorld) -> None:
    world.branch()
    world.there.forks["eve"] = world.there.path
    number = (await world.forge.open_pull_request(world.repository, SPEC)).number
    world.there.pull(number).fork = "eve"  # type: ignore[union-attr]
    assert (await world.forge.pull_request(world.repository, number)).is_fork is True
    assert (await world.forge.open_pull_request(world.repository, SPEC)).number != number


async def test_an_issue_is_read_and_a_pull_request_is_none(world: GitHubTestWorld) -> None:
    made = world.emulator.issue(world.there, "Crash\0 at start", "It crashes.", "eve", "bug")
    found = await world.forge.issue(world.repository, made.number)
    assert (found.title, found.body, found.author, found.labels) == ("Crash at start", "It crashes.", "eve", ("bug",))
    assert found.url.endswith("/ada/app/issues/1")
    world.branch()
    number = (await world.forge.open_pull_request(world.repository, SPEC)).number
    with pytest.raises(InvalidRequest, match="pull request"):
        await world.forge.issue(world.repository, number)


async def test_checks_of_all_kinds_count(world: GitHubTestWorld) -> None:
    sha = world.branch()
    number = (await world.forge.open_pull_request(world.repository, SPEC)).number
    for name, conclusion in (("a", "success"), ("b", "skipped"), ("c", None), ("d", "timed_out")):
        world.emulator.check(world.there, sha, name, conclusion)
    world.there.statuses.append({"sha": sha, "context": "old", "state": "error", "id": 1})
    found = {each.name: each.status for each in (await world.forge.pull_request(world.repository, number)).checks}
    ok, wait, red = CheckStatus.SUCCESS, CheckStatus.PENDING, CheckStatus.FAILURE
    assert found == {"a": ok, "b": ok, "c": wait, "d": red, "old": red}


# -- the App ------------------------------------------------------------------------------------------------------------


async def test_the_app_works_with_tokens_for_one_repository_that_are_used_again(tmp_path: Path) -> None:
    async with app_world(tmp_path) as (world, _):
        world.branch()
        facts = await world.forge.describe(world.repository)
        assert facts.may_push is True
        number = (await world.forge.open_pull_request(world.repository, SPEC)).number
        await world.forge.comment(world.repository, number, "At work", marker="task-t1")
        await world.forge.comment(world.repository, number, "Done", marker="task-t1")
        assert [each.body[:4] for each in world.there.issues[number].comments] == ["Done"]
        assert world.there.issues[number].user.login == "sandlot-bot[bot]"
        await world.forge.merge(world.repository, number)
        assert world.emulator.asked("POST", r"/app/installations/4711/access_tokens") == 1
        tokens = list(world.emulator.tokens.values())
        assert [each.repositories for each in tokens] == [frozenset({"ada/app"})]
        read, push = await world.forge.remote(world.repository), await world.forge.remote(world.repository, write=True)
        assert read.authorization != push.authorization
        made = [each.permissions for each in world.emulator.tokens.values()][1:]
        assert [each["contents"] for each in made if each] == ["read", "write"]


async def test_a_token_that_ends_soon_is_replaced(tmp_path: Path) -> None:
    later = timedelta()

    def clock() -> datetime:
        return now() + later

    async with app_world(tmp_path, clock) as (world, _):
        first = await world.forge.remote(world.repository)
        assert (await world.forge.remote(world.repository)).authorization == first.authorization
        later = timedelta(minutes=54)
        assert (await world.forge.remote(world.repository)).authorization == first.authorization
        later = timedelta(minutes=56)
        assert (await world.forge.remote(world.repository)).authorization != first.authorization


async def test_many_at_once_make_one_token(tmp_path: Path) -> None:
    async with app_world(tmp_path) as (world, _):
        await asyncio.gather(*(world.forge.remote(world.repository) for _ in range(10)))
        assert len(world.emulator.tokens) == 1


async def test_a_token_that_was_revoked_is_made_anew(tmp_path: Path) -> None:
    async with app_world(tmp_path) as (world, _):
        await world.forge.describe(world.repository)
        world.emulator.tokens.clear()
        with pytest.raises(ForgeRefused):
            await world.forge.pull_requests(world.repository)
        assert await world.forge.pull_requests(world.repository) == []


async def test_an_app_with_few_permissions_gets_what_it_has(tmp_path: Path) -> None:
    async with app_world(tmp_path, contents="write", pull_requests="write", metadata="read") as (world, _):
        world.branch()
        assert (await world.forge.open_pull_request(world.repository, SPEC)).number == 1
        with pytest.raises(ForgeRefused, match="may not do this"):
            await world.forge.issue(world.repository, world.emulator.issue(world.there, "t", "b", "ada").number)


async def test_an_app_that_is_not_installed_and_a_wrong_key_are_told(tmp_path: Path) -> None:
    async with app_world(tmp_path) as (world, app):
        app.installations.clear()
        with pytest.raises(NotFound, match="not installed for ada/app"):
            await world.forge.describe(world.repository)
        app.installations["ada"] = 4711
        app.public_key = rsa_pair()[1]
        with pytest.raises(ForgeRefused, match="refuses"):
            await world.forge.describe(world.repository)
        elsewhere = replace(world.repository, url="https://github.com/ada/app")
        with pytest.raises(ForgeRefused, match="is not at"):
            await world.forge.describe(elsewhere)


async def test_a_repository_whose_app_is_gone_is_told(world: GitHubTestWorld) -> None:
    with pytest.raises(ForgeRefused, match="no GitHub App"):
        await world.forge.describe(replace(world.repository, github_app=True))


# -- git ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["token", "app"])
async def test_a_push_survives_faults_and_leaves_no_token_behind(tmp_path: Path, kind: str) -> None:
    making = github_world(tmp_path) if kind == "token" else app_world(tmp_path)
    async with making as made:
        world: GitHubTestWorld = made[0] if isinstance(made, tuple) else made

        async def remote(asked: Repository, write: bool) -> GitRemote:
            return await world.forge.remote(asked, write=write)

        service = GitService(root=tmp_path / "git", secret="of the tests", remotes=remote)
        await service.open()
        prepared = await service.prepare("t1", world.repository)
        clone = tmp_path / "clone"
        await well("clone", "-q", prepared.path, clone)
        await well("checkout", "-qb", "task-t1", at=clone)
        sha = await commit(clone, "a.txt", "a\n")
        await well("push", "-q", "origin", "HEAD", at=clone)
        for fault in ("500", "reset", "403"):
            world.emulator.fault("POST", r"/ada/app\.git/git-receive-pack", fault, times=9)  # git itself tries again
            with pytest.raises(PlatformError):
                await service.forward("t1", world.repository)
            world.emulator.faults.clear()
        await service.forward("t1", world.repository)
        assert world.there.tip("task-t1") == sha
        for token in world.emulator.tokens:
            for file in (path for path in tmp_path.rglob("*") if path.is_file()):
                assert token.encode() not in file.read_bytes(), file


async def test_permissions_are_those_we_ask_for() -> None:
    from sandlot.platform.forges import github_accounts

    assert dict(github_accounts.API) == PERMISSIONS  # and never `workflows`: GitHub itself then refuses such pushes


async def test_a_server_that_is_not_there_is_told(tmp_path: Path) -> None:
    forge = GitHubForge(GitHubAccounts(app=None, clock=now))
    nowhere = repository("app", url="http://127.0.0.1:9/ada/app", forge=ForgeKind.GITHUB, token="ghp_secretsecret")
    with pytest.raises(Unavailable, match="does not answer") as refused:
        await forge.describe(nowhere)
    assert "secret" not in str(refused.value)
    await forge.close()
