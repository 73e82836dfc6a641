"""Repositories at GitHub over the platform's API: added with a token or the App, worked with, and no token in what is shown."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.github.emulator import Emulator, running
from tests.github.world import PERMISSIONS, rsa_pair
from tests.platform.fakes import ScriptedProvider
from tests.platform.world import Served, load_text, scripted

from sandlot.platform.config.configuration import Configuration
from sandlot.platform.core.errors import ConfigurationError


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Emulator]:
    with running(tmp_path / "github") as made:
        made.repository("ada/app", robot="write", bob="read")
        yield made


@pytest.fixture
async def served(tmp_path: Path, emulator: Emulator) -> AsyncIterator[Served]:
    async with Served(tmp_path, scripted(), {"scripted": ScriptedProvider()}) as made:
        yield made


async def asked(http: httpx.AsyncClient, method: str, path: str, status: int = 200, /, **body: Any) -> Any:
    answer = await http.request(method, path, json=body if method == "POST" else None)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


async def test_a_repository_at_an_enterprise_server_from_adding_to_merging(served: Served, emulator: Emulator) -> None:
    token = emulator.token("robot")
    there = emulator.repositories["ada/app"]
    async with served.http() as http:
        added = await asked(
            http, "POST", "/repositories", 201, name="app", url=f"{emulator.url}/ada/app", forge="github", token=token
        )
        assert (added["forge"], added["default_branch"], added["problem"]) == ("github", "main", None)
        emulator.commit(there, "topic", {"a.txt": "a\n"})
        names = [each["name"] for each in (await asked(http, "GET", "/repositories/app/branches"))["branches"]]
        assert names == ["main", "topic"]
        opened = await asked(http, "POST", "/repositories/app/pulls", 201, title="Add a file", head="topic")
        assert opened["url"] == f"{emulator.url}/ada/app/pull/1"
        await asked(http, "POST", "/repositories/app/pulls/1/comments", 201, body="Nice")
        listed = await asked(http, "GET", "/repositories/app/pulls?state=open")
        assert [each["number"] for each in listed["pulls"]] == [1]
        merged = await asked(http, "POST", "/repositories/app/pulls/1/merge", sha=opened["head_sha"])
        assert merged["state"] == "merged" and [each["body"] for each in merged["comments"]] == ["Nice"]
        shown = await http.get("/repositories/app")
        async with http.stream("GET", "/events", params={"subject": "repository", "after": 0}) as events:
            async for line in events.aiter_lines():
                assert token not in line
                if line.startswith("data:"):
                    break
        assert token not in shown.text


async def test_problems_are_told_when_it_is_added(served: Served, emulator: Emulator) -> None:
    url = f"{emulator.url}/ada/app"
    async with served.http() as http:

        async def added(status: int, name: str = "x", **body: Any) -> Any:
            return await asked(http, "POST", "/repositories", status, name=name, forge="github", **body)

        assert "refuses the token" in (await added(502, url=url, token="ghp_wrongwrong"))["message"]
        await added(404, url=f"{emulator.url}/ada/other", token=emulator.token("robot"))
        await added(404, url=url)
        await added(400, url=f"{emulator.url}/ada", token="x")
        assert "no GitHub App" in (await added(400, url=url, github_app=True))["message"]
        reading = await added(201, "reading", url=url, token=emulator.token("bob"))
        assert "not push" in reading["problem"]
        emulator.fault("GET", "/repos/ada/app", "secondary", seconds=200)
        limited = await http.post(
            "/repositories", json={"name": "y", "url": url, "forge": "github", "token": emulator.token("robot")}
        )
        assert limited.status_code == 503 and int(limited.headers["retry-after"]) >= 199


def configured(emulator: Emulator, place: Path) -> tuple[Configuration, str]:
    private, public = rsa_pair()
    app = emulator.app("sandlot-bot", public, **PERMISSIONS)
    app.installations["ada"] = 4711
    (place / "app.pem").write_text(private)
    text = f"""
        [providers.scripted]
        kind = "local"
        [github]
        url = "{emulator.url}"
        app_id = "{app.id}"
        private_key_file = "{place / "app.pem"}"
        """
    return load_text(text, has_engine=True), private


async def test_the_servers_app_speaks_for_what_an_admin_adds_and_not_for_users(
    emulator: Emulator, tmp_path: Path
) -> None:
    configuration, private = configured(emulator, tmp_path)
    assert private.splitlines()[1] not in repr(configuration)
    url = f"{emulator.url}/ada/app"
    async with Served(tmp_path, configuration, {"scripted": ScriptedProvider()}) as served:
        async with served.http() as http:
            added = await asked(http, "POST", "/repositories", 201, name="app", url=url)
            assert (added["forge"], added["github_app"], added["problem"]) == ("github", True, None)
            own = await asked(http, "POST", "/repositories", 201, name="own", url=url, token=emulator.token("robot"))
            assert own["github_app"] is False
            await asked(http, "POST", "/repositories", 400, name="x", url=url, token="t", github_app=True)
        await served.restart()
        async with served.http() as http:
            assert (await asked(http, "GET", "/repositories/app"))["github_app"] is True
            emulator.commit(emulator.repositories["ada/app"], "topic", {"a.txt": "a\n"})
            await asked(http, "POST", "/repositories/app/pulls", 201, title="x", head="topic")
        async with served.http(await served.key("eve")) as http:
            await asked(http, "POST", "/repositories", 403, name="y", url=url)
            await asked(http, "POST", "/repositories", 403, name="y", url="https://github.com/ada/app", github_app=True)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('app_id = "1"', "the key is missing"),
        ('app_id = "1"\nprivate_key_env = "KEY"', "not the PEM file"),
        ('private_key_env = "KEY"', "app_id"),
        ('app_id = "1"\nprivate_key_env = "KEY"\nurl = "https://git.example.org/path"', "url"),
        ('app = "1"', "did you mean 'app_id'"),
    ],
)
def test_a_wrong_configuration_stops_the_start_and_shows_no_key(lines: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as refused:
        load_text(f"[github]\n{lines}\n", {"KEY": "hunter2hunter2"}, has_engine=True)
    assert "hunter2" not in str(refused.value)


async def test_an_issue_becomes_a_task_of_the_repository_that_has_its_address(
    served: Served, emulator: Emulator
) -> None:
    there = emulator.repositories["ada/app"]
    emulator.issue(there, "Answer /health", "It should say that it is well.", "bob")
    work = {"agent": "claude", "start": False, "issue": f"{emulator.url}/ada/app/issues/1"}
    async with served.http() as http:
        assert "repo add" in (await asked(http, "POST", "/tasks", 400, **work))["message"]
        where = {"url": f"{emulator.url}/ada/app", "forge": "github", "token": emulator.token("robot")}
        await asked(http, "POST", "/repositories", 201, name="app", **where)
        task = await asked(http, "POST", "/tasks", 201, **work)
        assert (task["repository"], task["title"], task["issue"]) == ("app", "Answer /health", work["issue"])
        assert "It should say that it is well." in task["prompt"]
        named = await asked(http, "POST", "/tasks", 201, **work, repository="app", title="Mine")
        assert named["title"] == "Mine"
        await asked(http, "POST", "/tasks", 404, **{**work, "issue": f"{emulator.url}/ada/app/issues/99"})
