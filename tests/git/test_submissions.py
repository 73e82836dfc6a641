"""What attempts hand in: packs that the platform carries are taken like pushes, and become commits without a work tree."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.git.world import GitWorld, commit, well

from sandlot.platform.git.receiving import receive
from sandlot.platform.git.records import PushPolicy
from sandlot.platform.git.service import result_ref
from sandlot.platform.git.submissions import SAVED, commit_submission, read_submission

REF = result_ref(1)
ADA = ("Ada", "ada@example.org")


async def packed(clone: Path, sha: str, without: str = "origin/main") -> bytes:
    wanted = f"{sha}\n^{without}\n".encode()
    made = subprocess.run(
        ["git", "pack-objects", "-q", "--revs", "--thin", "--stdout"],
        cwd=clone, input=wanted, capture_output=True, check=True,
    )  # fmt: skip
    return made.stdout


async def handed_in(world: GitWorld, task: str, clone: Path, sha: str) -> str | None:
    path = (await world.service.prepare(task, world.repository)).path
    return await receive(world.service.git, path, REF, sha, await packed(clone, sha))


async def test_a_carried_pack_is_taken_and_committed_in_one_commit(world: GitWorld) -> None:
    clone = await world.started("a", rewritable=(REF,))
    await commit(clone, "x.txt", "1\n2\n", "not conventional")
    sha = await commit(clone, "y.txt", "3\n", SAVED)
    assert await handed_in(world, "a", clone, sha) is None
    prepared = await world.service.prepare("a", world.repository)
    found = await read_submission(world.service.git, prepared.path, REF, prepared.base_sha)
    assert found is not None and found.head == sha and found.saved is not None and not found.is_behind
    assert found.subjects == ("not conventional",) and found.paths == ("x.txt", "y.txt")
    assert (found.changes.files, found.changes.added) == (2, 3)
    made = await commit_submission(
        world.service.git, prepared.path, REF, found, "feat: both\n\nbody\n", author=ADA, squash=True
    )
    assert await world.service.head("a", 1) == made.head
    again = await read_submission(world.service.git, prepared.path, REF, prepared.base_sha)
    assert (
        again is not None and again.saved is None and again.subjects == ("feat: both",) and again.paths == found.paths
    )
    commits = await world.service.commits("a", 1)
    assert [(one.author, one.subject, one.body) for one in commits] == [("Ada", "feat: both", "body")]


async def test_commits_that_are_conventional_stay_and_what_is_left_comes_on_top(world: GitWorld) -> None:
    clone = await world.started("a", rewritable=(REF,))
    first = await commit(clone, "x.txt", "1\n", "feat: x")
    sha = await commit(clone, "y.txt", "2\n", SAVED)
    assert await handed_in(world, "a", clone, sha) is None
    prepared = await world.service.prepare("a", world.repository)
    found = await read_submission(world.service.git, prepared.path, REF, prepared.base_sha)
    assert found is not None
    await commit_submission(world.service.git, prepared.path, REF, found, "docs: y\n", author=ADA, squash=False)
    commits = await world.service.commits("a", 1)
    assert [one.subject for one in commits] == ["docs: y", "feat: x"] and commits[1].sha == first


async def test_a_carried_pack_is_refused_like_a_push(world: GitWorld) -> None:
    clone = await world.started("a", rewritable=(REF,))
    sha = await commit(clone, ".github/workflows/ci.yml", "on: push\n", "ci: mine")
    later = await commit(clone, "x.txt", "1\n", "feat: x")
    await well("rm", "-q", ".github/workflows/ci.yml", at=clone)
    await well("commit", "-qm", "ci: undone", at=clone)
    undone = await well("rev-parse", "HEAD", at=clone)
    for one in (sha, later, undone):  # also what a later commit takes back
        refusal = await handed_in(world, "a", clone, one)
        assert refusal is not None and ".github/workflows" in refusal
    assert await world.service.head("a", 1) is None


async def test_what_is_no_commit_or_not_whole_is_refused_and_leaves_nothing(world: GitWorld) -> None:
    clone = await world.started("a", rewritable=(REF,))
    sha = await commit(clone, "x.txt", "1\n", "feat: x")
    path = (await world.service.prepare("a", world.repository)).path
    whole, objects = await packed(clone, sha), sorted((path / "objects").rglob("*"))
    tree = await well("rev-parse", "HEAD^{tree}", at=clone)
    empty = await packed(clone, "origin/main")
    for new, pack in (
        (sha, empty),
        (sha, whole[:-30]),
        (sha, b"PACK"),
        (tree, whole),
        ("x; rm", whole),
        ("HEAD", whole),
    ):
        assert await receive(world.service.git, path, REF, new, pack) is not None
    assert await receive(world.service.git, path, "refs/heads/main", sha, whole) is not None
    assert sorted((path / "objects").rglob("*")) == objects and await world.service.head("a", 1) is None
    await world.service.allow("a", PushPolicy(rewritable=(REF,), max_bytes=10))
    refusal = await receive(world.service.git, path, REF, sha, whole)
    assert refusal is not None and "at most" in refusal
    await world.service.allow("a", PushPolicy(rewritable=(REF,)))
    assert await receive(world.service.git, path, REF, sha, whole) is None


async def test_a_base_pack_is_made_once_and_anew_when_its_branch_moves(world: GitWorld) -> None:
    prepared = await world.service.prepare("a", world.repository)
    first = await world.service.base_packs.get(world.repository, "main", prepared.base_sha)
    assert first is not None and first.sha == prepared.base_sha
    again = await world.service.base_packs.get(world.repository, "main", prepared.base_sha)
    assert again == first
    clone = world.place / "person"
    await well("clone", "-q", world.origin, clone)
    await commit(clone, "new.txt", "x\n", "feat: new")
    await well("push", "-q", "origin", "HEAD:main", at=clone)
    moved = await world.service.fetch_base("a", world.repository)
    second = await world.service.base_packs.get(world.repository, "main", moved.new)
    assert second is not None and second.sha == moved.new and not first.pack.exists()
    checked = await well("verify-pack", "-v", second.index)
    assert moved.new in checked and prepared.base_sha in checked
