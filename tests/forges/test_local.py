"""Repositories that are hosted here: over the platform's API, and over git's own protocol with real git."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.git.world import commit, git, well
from tests.platform.fakes import ScriptedProvider
from tests.platform.world import ADMIN, Served, scripted

from sandlot.platform.core.model import Scope


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with Served(tmp_path, scripted(), {"scripted": ScriptedProvider()}) as made:
        yield made


@pytest.fixture
async def http(served: Served) -> AsyncIterator[httpx.AsyncClient]:
    async with served.http() as client:
        yield client


async def asked(http: httpx.AsyncClient, method: str, path: str, status: int = 200, /, **body: Any) -> Any:
    answer = await http.request(method, path, json=body if method == "POST" else None)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


def address(served: Served, name: str, key: str = ADMIN) -> str:
    return f"http://x:{key}@127.0.0.1:{served.port}/git/{name}.git"


async def branch(served: Served, place: Path, name: str = "topic", content: str = "new\n") -> str:
    """A clone of `app` with one more commit, pushed as a branch of that name."""
    clone = place / f"clone-{name}"
    await well("clone", "-q", address(served, "app"), clone)
    await well("checkout", "-qb", name, at=clone)
    sha = await commit(clone, "file.txt", content)
    await well("push", "-q", "origin", "HEAD", at=clone)
    return sha


async def test_from_creation_to_a_merged_pull_request(served: Served, http: httpx.AsyncClient, tmp_path: Path) -> None:
    made = await asked(http, "POST", "/repositories", 201, name="app")
    assert (made["forge"], made["default_branch"], made["url"]) == ("local", "main", None)
    assert made["clone_url"] == f"http://127.0.0.1:{served.port}/git/app.git"
    sha = await branch(served, tmp_path)
    found = await asked(http, "GET", "/repositories/app/branches")
    assert {each["name"] for each in found["branches"]} == {"main", "topic"}

    opened = await asked(http, "POST", "/repositories/app/pulls", 201, title="Add a file", head="topic", labels=["x"])
    assert (opened["number"], opened["state"], opened["head_sha"], opened["mergeable"]) == (1, "open", sha, True)
    again = await asked(http, "POST", "/repositories/app/pulls", 201, title="Again", head="topic")
    assert (again["number"], again["title"]) == (1, "Add a file")
    diff = await asked(http, "GET", "/repositories/app/pulls/1/diff")
    assert [(file["path"], file["status"], file["added"]) for file in diff["files"]] == [("file.txt", "added", 1)]
    patch = await http.get("/repositories/app/pulls/1/diff?format=patch")
    assert "+new" in patch.text and patch.headers["content-type"].startswith("text/x-patch")

    await asked(http, "POST", "/repositories/app/pulls/1/comments", 201, body="Nice", path="file.txt", line=1)
    shown = await asked(http, "GET", "/repositories/app/pulls/1")
    assert [(each["body"], each["path"], each["line"]) for each in shown["comments"]] == [("Nice", "file.txt", 1)]
    await asked(http, "POST", "/repositories/app/pulls/1/merge", 409, sha="0" * 40)
    merged = await asked(http, "POST", "/repositories/app/pulls/1/merge", sha=sha)
    assert merged["state"] == "merged" and merged["merged_at"]
    assert (await asked(http, "POST", "/repositories/app/pulls/1/merge"))["merge_sha"] == merged["merge_sha"]
    after = tmp_path / "after"
    await well("clone", "-q", address(served, "app"), after)
    assert (after / "file.txt").read_text() == "new\n"
    assert await well("rev-parse", "HEAD", at=after) == merged["merge_sha"]
    kept = await asked(http, "GET", "/repositories/app/pulls/1/diff")
    assert [file["path"] for file in kept["files"]] == ["file.txt"]
    await asked(http, "POST", "/repositories/app/pulls/1/close", 409)
    assert [each["number"] for each in (await asked(http, "GET", "/repositories/app/pulls?state=merged"))["pulls"]] == [
        1
    ]

    events = [event async for event in _events(http, "pull")]
    assert events == ["pull.opened", "pull.commented", "pull.merged"]


async def _events(http: httpx.AsyncClient, subject: str) -> AsyncIterator[str]:
    async with http.stream("GET", "/events", params={"subject": subject, "after": 0}) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                yield line[7:]
                if line.endswith("merged"):
                    return


async def test_a_conflict_is_told_and_changes_nothing(served: Served, http: httpx.AsyncClient, tmp_path: Path) -> None:
    await asked(http, "POST", "/repositories", 201, name="app")
    await branch(served, tmp_path, "one", "one\n")
    await branch(served, tmp_path, "two", "two\n")
    for name in ("one", "two"):
        await asked(http, "POST", "/repositories/app/pulls", 201, title=name, head=name)
    await asked(http, "POST", "/repositories/app/pulls/1/merge")
    shown = await asked(http, "GET", "/repositories/app/pulls/2")
    assert shown["mergeable"] is False
    refused = await asked(http, "POST", "/repositories/app/pulls/2/merge", 409)
    assert "conflicts with main" in refused["message"]
    closed = await asked(http, "POST", "/repositories/app/pulls/2/close")
    assert closed["state"] == "closed"
    await asked(http, "POST", "/repositories/app/pulls/2/merge", 409)


async def test_many_at_once_open_one_pull_request(served: Served, http: httpx.AsyncClient, tmp_path: Path) -> None:
    await asked(http, "POST", "/repositories", 201, name="app")
    await branch(served, tmp_path)
    opening = [asked(http, "POST", "/repositories/app/pulls", 201, title=f"{n}", head="topic") for n in range(8)]
    assert {made["number"] for made in await asyncio.gather(*opening)} == {1}
    assert len((await asked(http, "GET", "/repositories/app/pulls"))["pulls"]) == 1


async def test_what_makes_no_pull_request_is_said(served: Served, http: httpx.AsyncClient) -> None:
    await asked(http, "POST", "/repositories", 201, name="app")
    nothing = await asked(http, "POST", "/repositories/app/pulls", 409, title="x", head="main")
    assert "has no commit" in nothing["message"]
    for head in ("missing", "--help", "a..b", "main:x", "refs/heads/main^{tree}"):
        await asked(http, "POST", "/repositories/app/pulls", 400, title="x", head=head)
    await asked(http, "GET", "/repositories/app/pulls/7", 404)
    await asked(http, "GET", "/repositories/nothing/pulls/1", 404)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../x", "a.git", "-a", "a b", "a\n", "ü", "a" * 101, "a..b", "x.lock"]
)
async def test_names_that_are_no_names_are_refused(http: httpx.AsyncClient, name: str) -> None:
    answer = await http.post("/repositories", json={"name": name})
    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc",
        "/etc",
        "ssh://git@github.com/a/b",
        "git@github.com:a/b",
        "ext::sh -c id",
        "https://user:token@example.org/a",
        "https://example.org/a?x=1",
        "https://exa mple.org/a",
        "--upload-pack=id",
        "http://",
        "http://[::1",
    ],
)
async def test_addresses_that_git_must_not_see_are_refused(http: httpx.AsyncClient, url: str) -> None:
    answer = await http.post("/repositories", json={"name": "x", "url": url})
    assert answer.status_code == 400, answer.text
    assert "token@" not in answer.text


async def test_users_have_their_own_repositories_and_see_those_of_everybody(served: Served, tmp_path: Path) -> None:
    ada, bob = await served.key("ada"), await served.key("bob")
    reading = await served.key("ada", Scope.READ)
    async with served.http(ada) as hers, served.http(bob) as his, served.http() as admin:
        await asked(hers, "POST", "/repositories", 201, name="hers")
        await asked(admin, "POST", "/repositories", 201, name="shared")
        assert [each["name"] for each in (await asked(hers, "GET", "/repositories"))["repositories"]] == [
            "hers",
            "shared",
        ]
        assert [each["name"] for each in (await asked(his, "GET", "/repositories"))["repositories"]] == ["shared"]
        for path in ("hers", "hers/branches", "hers/pulls", "hers/pulls/1/diff"):
            await asked(his, "GET", f"/repositories/{path}", 404)
        await asked(his, "DELETE", "/repositories/hers", 404)
        await asked(his, "DELETE", "/repositories/shared", 403)
        await asked(his, "POST", "/repositories", 409, name="hers")
        for body in (
            {"url": "http://127.0.0.1:1/x"},
            {"url": "https://169.254.169.254/x"},
            {"url": "https://github.com/a/b", "token_env": "HOME"},
            {"user_id": "ada"},
        ):
            await asked(his, "POST", "/repositories", 403, name="other", **body)

        assert (await git("ls-remote", address(served, "hers", bob))).status != 0
        assert (await git("ls-remote", address(served, "hers", "wrong"))).status != 0
        assert (await git("ls-remote", address(served, "hers", "%20"))).status != 0
        clone = tmp_path / "clone"
        await well("clone", "-q", address(served, "hers", reading), clone)
        await commit(clone, "a", "a")
        refused = await git("push", "origin", "HEAD", at=clone)
        assert refused.status != 0
        await well("push", "-q", address(served, "hers", ada), "HEAD:main", at=clone)

        await asked(hers, "DELETE", "/repositories/hers", 204)
        await asked(hers, "GET", "/repositories/hers", 404)
        assert (await git("ls-remote", address(served, "hers", ada))).status != 0


@pytest.mark.parametrize(
    "path", ["/git/", "/git/app", "/git/app.git", "/git/app.git/config", "/git/../app.git/info/refs"]
)
async def test_nothing_but_gits_requests_is_served(http: httpx.AsyncClient, path: str) -> None:
    await asked(http, "POST", "/repositories", 201, name="app")
    answer = await http.get(path)
    assert answer.status_code == 404, answer.text


async def test_a_task_works_on_a_hosted_repository_over_a_restart(served: Served, tmp_path: Path) -> None:
    async with served.http() as http:
        await asked(http, "POST", "/repositories", 201, name="app", empty=True)
        clone = tmp_path / "clone"
        await well("clone", "-q", address(served, "app"), clone)
        await commit(clone, "a", "a", "chore: begin")
        await well("push", "-q", "origin", "HEAD:main", at=clone)
    await served.restart()
    async with served.http() as http:
        found = await asked(http, "GET", "/repositories/app/branches")
        assert [each["name"] for each in found["branches"]] == ["main"]


async def test_a_remote_without_an_answer_is_told(http: httpx.AsyncClient) -> None:
    answer = await http.post(
        "/repositories", json={"name": "x", "url": "http://127.0.0.1:9/x", "token": "ghp_secretsecret1"}
    )
    assert answer.status_code == 503, answer.text
    assert "secret" not in answer.text
    assert (await http.get("/repositories/x")).status_code == 404
