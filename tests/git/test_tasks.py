"""A task's repository: cloned and pushed to by real git, over real HTTP; what it refuses, and the way to the forge."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import httpx
import pytest
from tests.git.world import GitWorld, commit, git, repository, well

from sandlot.platform.core.errors import Conflict, InvalidRequest, NotFound
from sandlot.platform.core.forges import is_branch_name
from sandlot.platform.git.records import PushPolicy


async def test_a_branch_goes_from_the_clone_to_the_forge(world: GitWorld) -> None:
    clone = await world.started("a1")
    assert await world.service.head("a1") is None
    assert (await world.service.diff("a1")).files == ()
    sha = await commit(clone, "src/new.py", "one\ntwo\n", "feat(src): add new\n\nBecause.")
    await well("push", "-q", "origin", "HEAD", at=clone)

    assert await world.service.head("a1") == sha
    (found,) = await world.service.commits("a1")
    assert (found.sha, found.subject, found.body, found.author) == (sha, "feat(src): add new", "Because.", "Ada")
    changes = await world.service.numstat("a1")
    assert (changes.files, changes.added, changes.removed) == (1, 2, 0)
    assert (await git("rev-parse", "-q", "--verify", "task-a1", at=world.origin)).status != 0

    forwarded = await world.service.forward("a1", world.repository)
    assert (forwarded.sha, forwarded.was, forwarded.branch) == (sha, None, "task-a1")
    assert await well("rev-parse", "task-a1", at=world.origin) == sha
    again = await world.service.forward("a1", world.repository)
    assert (again.sha, again.was) == (sha, sha)


async def test_a_difference_tells_of_every_kind_of_change(world: GitWorld, tmp_path: Path) -> None:
    person = tmp_path / "person"
    await well("clone", "-q", world.origin, person)
    await commit(person, "old name.txt", "".join(f"line {n}\n" for n in range(50)))
    await commit(person, "gone.txt", "gone\n")
    await well("push", "-q", "origin", "main", at=person)

    clone = await world.started("d1")
    await well("mv", "old name.txt", "new nämé.txt", at=clone)
    (clone / "gone.txt").unlink()
    (clone / "README.md").write_text("hello\ndiff --git a/x b/x\n")
    (clone / "blob.bin").write_bytes(bytes(range(256)) * 8)
    await commit(clone, "huge.txt", "x\n" * 200_000)
    await well("push", "-q", "origin", "HEAD", at=clone)
    found = await world.service.diff("d1")
    files = {file.path: file for file in found.files}
    assert {name: file.status for name, file in files.items()} == {
        "README.md": "modified",
        "blob.bin": "added",
        "gone.txt": "deleted",
        "huge.txt": "added",
        "new nämé.txt": "renamed",
    }
    assert files["new nämé.txt"].old_path == "old name.txt"
    assert files["blob.bin"].binary and files["blob.bin"].patch is None
    assert files["huge.txt"].patch is None and files["huge.txt"].added == 200_000 and found.truncated
    assert "+diff --git a/x b/x" in (files["README.md"].patch or "")
    assert b"GIT binary patch" in await world.service.patch("d1")


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("HEAD:refs/heads/main", "may push only to task-r1"),
        ("HEAD:refs/heads/task-r2", "may push only to task-r1"),
        ("HEAD:refs/tags/v1", "may push only to task-r1"),
        ("HEAD:refs/notes/x", "may push only to task-r1"),
        (":refs/heads/task-r1", "may not be deleted"),
        (":refs/heads/main", "may push only to task-r1"),
    ],
)
async def test_only_the_tasks_own_branch_is_taken(world: GitWorld, what: str, words: str) -> None:
    clone = await world.started("r1")
    await commit(clone, "a", "a")
    await well("push", "-q", "origin", "HEAD", at=clone)
    before = await well("show-ref", at=world.service._path("r1"))
    await commit(clone, "b", "b")
    refused = await git("push", "origin", what, at=clone)
    assert refused.status != 0 and words in refused.output and "remote: sandlot:" in refused.output, refused.output
    assert await well("show-ref", at=world.service._path("r1")) == before


async def test_history_is_rewritten_only_where_the_policy_allows_it(world: GitWorld) -> None:
    clone = await world.started("f1")
    first = await commit(clone, "a", "a")
    await well("push", "-q", "origin", "HEAD", at=clone)
    await world.service.forward("f1", world.repository)
    await well("commit", "-q", "--amend", "-m", "fix: other words", at=clone)
    refused = await git("push", "--force", "origin", "HEAD", at=clone)
    assert refused.status != 0 and "rewriting history is not allowed" in refused.output, refused.output
    assert await world.service.head("f1") == first

    await world.service.allow("f1", PushPolicy(allow_force=True))
    await well("push", "-q", "--force", "origin", "HEAD", at=clone)
    forwarded = await world.service.forward("f1", world.repository)
    assert forwarded.was == first != forwarded.sha


async def test_workflows_are_protected_in_every_commit(world: GitWorld) -> None:
    clone = await world.started("w1")
    await commit(clone, ".github/workflows/ci.yml", "on: push\n")
    refused = await git("push", "origin", "HEAD", at=clone)
    assert refused.status != 0 and "may not change files below .github/workflows" in refused.output, refused.output
    (clone / ".github/workflows/ci.yml").unlink()
    await commit(clone, "b", "b")
    hidden = await git("push", "origin", "HEAD", at=clone)  # the sum is clean, a commit in between is not
    assert hidden.status != 0 and "ci.yml" in hidden.output
    await world.service.allow("w1", PushPolicy(protect=()))
    await well("push", "-q", "origin", "HEAD", at=clone)


async def test_a_push_that_is_too_large_leaves_nothing(world: GitWorld) -> None:
    clone = await world.started("l1", max_bytes=1 << 20)
    await commit(clone, "large.bin", os.urandom(3 << 20))
    refused = await git("push", "origin", "HEAD", at=clone)
    assert refused.status != 0
    assert await world.service.head("l1") is None
    stored = sum(file.stat().st_size for file in (world.service._path("l1") / "objects").rglob("*") if file.is_file())
    assert stored < 1 << 20


async def test_a_large_push_and_a_compressed_fetch_go_through(world: GitWorld) -> None:
    clone = await world.started("big")
    sha = await commit(clone, "large.bin", os.urandom(8 << 20))
    await well("push", "-q", "origin", "HEAD", at=clone)  # over 1 MB: git sends it in chunks, after a probe
    again = await world.clone("big", "again")
    assert await well("rev-parse", "origin/task-big", at=again) == sha
    shallow = world.place / "shallow"
    await well("clone", "-q", "--depth", "1", "--filter=blob:none", "--no-checkout", world.clone_url("big"), shallow)


@pytest.mark.parametrize("credential", ["", "wrong", "of another task", "ü"])
async def test_another_credential_opens_nothing(world: GitWorld, credential: str) -> None:
    await world.service.prepare("c1", world.repository)
    await world.service.prepare("c2", world.repository)
    given = world.service.credential("c2") if credential == "of another task" else credential
    async with httpx.AsyncClient(trust_env=False) as http:
        for route in ("info/refs?service=git-upload-pack", "info/refs?service=git-receive-pack"):
            answer = await http.get(f"{world.url}/git/c1/repo.git/{route}", auth=("x", given))
            assert answer.status_code == 401
        posted = await http.post(f"{world.url}/git/c1/repo.git/git-receive-pack", content=b"0000", auth=("x", given))
        assert posted.status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "HEAD", 404),
        ("GET", "objects/info/alternates", 404),
        ("GET", "sandlot-task.json", 404),
        ("GET", "../c2.git/info/refs?service=git-upload-pack", 200),  # the path names no repository: still c1's own
        ("GET", "info/refs", 404),
        ("GET", "info/refs?service=git-upload-archive", 404),
        ("GET", "info/refs?service=git-upload-pack%00", 404),
        ("GET", "git-receive-pack", 405),
        ("PUT", "git-receive-pack", 405),
        ("POST", "info/refs?service=git-upload-pack", 405),
    ],
)
async def test_only_gits_smart_requests_are_answered(world: GitWorld, method: str, path: str, status: int) -> None:
    prepared = await world.service.prepare("c1", world.repository)
    async with httpx.AsyncClient(trust_env=False) as http:
        url = f"{world.url}/git/c1/repo.git/{path}"
        answer = await http.request(method, url, auth=("x", prepared.credential))
    assert answer.status_code == status, answer.text
    assert b"rp_app" not in answer.content


@pytest.mark.parametrize("task", ["", "../x", "a/b", "A", "a.git", "-a", "a" * 65, "a\n", "..", "a\0"])
async def test_ids_that_are_no_ids_reach_no_file(world: GitWorld, task: str) -> None:
    with pytest.raises(InvalidRequest):
        await world.service.prepare(task, world.repository)
    with pytest.raises(InvalidRequest):
        world.service.handler(task)


@pytest.mark.parametrize(
    "branch", ["", "-x", "--upload-pack=id", "a..b", "a b", "a\nb", "@{1}", "x.lock", "/x", "x/", "a~1", "HEAD^", "a:b"]
)
async def test_hostile_names_of_branches_are_refused(world: GitWorld, branch: str) -> None:
    assert not is_branch_name(branch)
    if branch:
        with pytest.raises(InvalidRequest, match="has no branch"):
            await world.service.prepare("h1", world.repository, branch)


async def test_what_is_no_pack_is_refused(world: GitWorld) -> None:
    prepared = await world.service.prepare("n1", world.repository)
    zero, ref = "0" * 40, "refs/heads/task-n1"
    line = f"{zero} {'1' * 40} {ref}\0report-status\n".encode()
    body = f"{len(line) + 4:04x}".encode() + line + b"0000PACK" + b"\xff" * 5000
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.post(
            f"{world.url}/git/n1/repo.git/git-receive-pack",
            content=body,
            headers={"content-type": "application/x-git-receive-pack-request"},
            auth=("x", prepared.credential),
        )
    assert answer.status_code < 500
    assert await world.service.head("n1") is None


async def test_preparing_twice_gives_the_same_and_discarding_twice_is_fine(world: GitWorld) -> None:
    first = await world.service.prepare("p1", world.repository)
    assert await world.service.prepare("p1", world.repository) == first
    await world.service.discard("p1")
    await world.service.discard("p1")
    with pytest.raises(NotFound):
        await world.service.head("p1")
    assert world.service.credential("p1") == first.credential


async def test_a_task_sees_a_base_that_moved(world: GitWorld, tmp_path: Path) -> None:
    clone = await world.started("m1")
    person = tmp_path / "person"
    await well("clone", "-q", world.origin, person)
    new = await commit(person, "other", "other")
    await well("push", "-q", "origin", "main", at=person)
    move = await world.service.fetch_base("m1", world.repository)
    assert move.has_moved and move.new == new
    assert not (await world.service.fetch_base("m1", world.repository)).has_moved
    await well("fetch", "-q", "origin", at=clone)
    assert await well("rev-parse", "origin/main", at=clone) == new


async def test_somebody_elses_commits_at_the_forge_are_not_overwritten(world: GitWorld, tmp_path: Path) -> None:
    clone = await world.started("s1")
    await commit(clone, "a", "a")
    await well("push", "-q", "origin", "HEAD", at=clone)
    await world.service.forward("s1", world.repository)
    person = tmp_path / "person"
    await well("clone", "-q", "-b", "task-s1", world.origin, person)
    theirs = await commit(person, "b", "b")
    await well("push", "-q", "origin", "HEAD", at=person)
    await commit(clone, "c", "c")
    await well("push", "-q", "origin", "HEAD", at=clone)
    with pytest.raises(Conflict, match="by somebody else"):
        await world.service.forward("s1", world.repository)
    assert await well("rev-parse", "task-s1", at=world.origin) == theirs


async def test_tasks_push_and_are_forwarded_side_by_side(world: GitWorld) -> None:
    async def one(task: str) -> str:
        clone = await world.started(task)
        sha = await commit(clone, f"{task}.txt", task)
        await well("push", "-q", "origin", "HEAD", at=clone)
        assert (await world.service.forward(task, world.repository)).sha == sha
        return sha

    tasks = [f"t{n}" for n in range(6)]
    shas = await asyncio.gather(*map(one, tasks))
    for task, sha in zip(tasks, shas, strict=True):
        assert await well("rev-parse", f"task-{task}", at=world.origin) == sha
    assert world.remotes.count(False) == 1  # one fetch of the mirror served them all


async def test_two_pushes_to_one_branch_end_with_one_of_them(world: GitWorld) -> None:
    first = await world.started("x1")
    second = await world.clone("x1", "second")
    await well("checkout", "-qb", "task-x1", at=second)
    shas = [await commit(first, "a", "a"), await commit(second, "b", "b")]
    pushes = [git("push", "-q", "origin", "HEAD", at=clone) for clone in (first, second)]
    ended = await asyncio.gather(*pushes)
    assert sorted(ran.status == 0 for ran in ended) == [False, True], ended
    assert await world.service.head("x1") == shas[0 if ended[0].status == 0 else 1]


async def test_submodules_and_lfs_are_told(world: GitWorld, tmp_path: Path) -> None:
    person = tmp_path / "person"
    await well("clone", "-q", world.origin, person)
    await commit(person, ".gitattributes", "*.bin filter=lfs diff=lfs\n")
    await commit(person, ".gitmodules", '[submodule "x"]\n\tpath = x\n\turl = https://forge.test/x\n')
    await well("push", "-q", "origin", "main", at=person)
    prepared = await world.service.prepare("n2", world.repository)
    assert len(prepared.notes) == 2
    assert "submodules" in prepared.notes[0] and "LFS" in prepared.notes[1]


async def test_a_task_is_forwarded_to_its_own_repository_only(world: GitWorld) -> None:
    await world.service.prepare("o1", world.repository)
    with pytest.raises(InvalidRequest, match="another repository"):
        await world.service.forward("o1", repository("other"))
