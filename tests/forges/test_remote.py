"""A repository elsewhere, behind real HTTP and a token: fetched and pushed to, with the token in no argument and no file."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.git.world import commit, repository, well
from tests.platform.fakes import ScriptedProvider
from tests.platform.world import Served, scripted

from sandlot.platform.core.errors import ForgeRefused
from sandlot.platform.core.forges import GitRemote, Repository
from sandlot.platform.forges.remote import RemoteForge
from sandlot.platform.git.commands import Git, cleaned
from sandlot.platform.git.service import GitService


@pytest.fixture
async def far(tmp_path: Path) -> AsyncIterator[Served]:
    """A server that hosts `app`: here it is nothing but a git server that wants a password."""
    place = tmp_path / "far"
    place.mkdir()
    async with Served(place, scripted(), {"scripted": ScriptedProvider()}) as served:
        async with served.http() as http:
            assert (await http.post("/repositories", json={"name": "app"})).status_code == 201
        yield served


def service(place: Path) -> tuple[GitService, RemoteForge]:
    forge = RemoteForge(Git(place / "git"))

    async def remote(asked: Repository, write: bool) -> GitRemote:
        return await forge.remote(asked, write=write)

    return GitService(root=place / "git", secret="of the tests", remotes=remote), forge


async def test_a_token_is_in_no_argument_and_no_file(
    far: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await far.key("ada")
    noted = tmp_path / "arguments"
    programs = tmp_path / "programs"
    programs.mkdir()
    wrapper = programs / "git"
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> {noted}\nexec {shutil.which("git")} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setenv("FAR_TOKEN", token)

    url = f"http://127.0.0.1:{far.port}/git/app.git"
    elsewhere = repository(url=url, token_env="FAR_TOKEN")
    made, forge = service(tmp_path)
    await made.open()
    assert (await forge.describe(elsewhere)).default_branch == "main"
    prepared = await made.prepare("t1", elsewhere)
    clone = tmp_path / "clone"
    await well("clone", "-q", prepared.path, clone)
    await well("checkout", "-qb", "task-t1", at=clone)
    sha = await commit(clone, "a", "a")
    await well("push", "-q", "origin", "HEAD", at=clone)
    await made.forward("t1", elsewhere)
    async with far.http() as http:
        found = (await http.get("/repositories/app/branches")).json()["branches"]
    assert {"name": "task-t1", "sha": sha} in found

    arguments = noted.read_text()
    assert "push" in arguments and "fetch" in arguments and "ls-remote" in arguments
    assert token not in arguments
    assert token not in repr(elsewhere) + repr(await forge.remote(elsewhere))
    for file in (tmp_path / "git").rglob("*"):
        assert not file.is_file() or token.encode() not in file.read_bytes(), file


async def test_a_wrong_token_and_one_that_is_missing_are_told(far: Served, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{far.port}/git/app.git"
    made, _ = service(tmp_path)
    await made.open()
    with pytest.raises(ForgeRefused, match="wants a token, or refuses"):
        await made.prepare("t1", repository(url=url, token="slp_notgood"))
    with pytest.raises(ForgeRefused, match="NO_SUCH_VARIABLE"):
        await made.prepare("t1", repository(url=url, token_env="NO_SUCH_VARIABLE"))


def test_what_git_says_is_cleaned_of_secrets() -> None:
    said = "fatal: https://x:hunter2hunter2@forge.test/a ghp_abcdefgh12345678 Authorization: Basic c2VjcmV0"
    shown = cleaned(said)
    assert not any(secret in shown for secret in ("hunter2", "12345678", "c2VjcmV0"))
