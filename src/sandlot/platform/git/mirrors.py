"""Bare copies of repositories on this host: hosted ones, and mirrors of remote ones that are kept fresh.

Tasks borrow objects from here, so nothing is ever pruned: no automatic gc, and packing keeps what is unreachable.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from sandlot.platform.core.errors import InvalidRequest, NotFound
from sandlot.platform.core.forges import GitRemote, Repository, is_branch_name
from sandlot.platform.git.commands import Git
from sandlot.platform.git.records import Branch

Remotes = Callable[[Repository, bool], Awaitable[GitRemote]]  # the way to a repository; True: to push
FRESH_S = 10.0  # a mirror that was fetched so lately is not fetched again
MANY_PACKS = 40
_SHA = re.compile(r"[0-9a-f]{40}")


class Mirrors:
    def __init__(self, git: Git, root: Path, remotes: Remotes) -> None:
        self._git, self._root, self._remotes = git, root, remotes
        self._locks: dict[str, asyncio.Lock] = {}
        self._fetched: dict[str, float] = {}

    def path(self, repository: Repository) -> Path:
        return self._root / f"{_safe(repository.id)}.git"

    @asynccontextmanager
    async def turn(self, repository: Repository) -> AsyncIterator[None]:
        """What must not overlap in one repository: fetching, pushing, opening pull requests. In the order of asking."""
        async with self._locks.setdefault(repository.id, asyncio.Lock()):
            yield

    async def create(self, repository: Repository) -> Path:
        """An empty one; nothing happens if it is there. All or nothing."""
        path = self.path(repository)
        if path.exists():
            return path
        temporary = path.with_name(f".{path.name}.new")
        shutil.rmtree(temporary, ignore_errors=True)
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        branch = repository.default_branch
        await self._git.run("init", "--quiet", "--bare", "--template=", "--initial-branch", branch, str(temporary))
        for name, value in (("gc.auto", "0"), ("http.receivepack", "true"), ("uploadpack.allowFilter", "true")):
            await self._git.run("config", name, value, at=temporary)
        temporary.rename(path)
        return path

    async def refresh(self, repository: Repository, *, force: bool = False) -> Path:
        """Fetch what is new at the forge. A hosted repository has nothing to fetch."""
        path = self.path(repository)
        if repository.url is None:
            if not path.exists():
                raise NotFound(f"the files of repository {repository.name!r} are not on this host")
            return path
        asked = time.monotonic()
        async with self.turn(repository):
            if path.exists() and not force and asked - self._fetched.get(repository.id, -FRESH_S) < FRESH_S:
                return path
            if self._fetched.get(repository.id, 0.0) > asked:  # somebody else did, while this one waited
                return path
            await self.create(repository)
            began = time.monotonic()
            remote = await self._remotes(repository, False)
            wanted = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
            options = ("--quiet", "--prune", "--no-tags", "--no-write-fetch-head", "--end-of-options")
            doing = f"fetch repository {repository.name!r}"
            await self._git.transfer("fetch", *options, remote.url, *wanted, at=path, remote=remote, doing=doing)
            await self._pack(path)
            self._fetched[repository.id] = began
        return path

    async def _pack(self, path: Path) -> None:
        if len(list((path / "objects" / "pack").glob("*.pack"))) > MANY_PACKS:
            await self._git.run("repack", "-a", "-d", "--keep-unreachable", "--quiet", at=path, timeout_s=900)

    async def branches(self, repository: Repository) -> Sequence[Branch]:
        path = await self.refresh(repository)
        shown = "%(objectname) %(refname:lstrip=2)"
        listed = await self._git.run("for-each-ref", f"--format={shown}", "--count=5000", "refs/heads/", at=path)
        pairs = (line.split(" ", 1) for line in listed.text.splitlines())
        return [Branch(name, sha) for sha, name in pairs]

    async def commit_of(self, repository: Repository, branch: str) -> str:
        """Raises `InvalidRequest` if it has no such branch."""
        sha = await resolve(self._git, self.path(repository), branch)
        if sha is None:
            raise InvalidRequest(f"repository {repository.name!r} has no branch {branch[:200]!r}")
        return sha

    async def remove(self, repository: Repository) -> None:
        async with self.turn(repository):
            await asyncio.to_thread(shutil.rmtree, self.path(repository), True)
            self._fetched.pop(repository.id, None)


def loose_ref(at: Path, ref: str) -> str | None:
    """What a ref is at, without a process, if it is in a file of its own: all are that were written lately."""
    try:
        text = (at / ref).read_text().strip()
    except (OSError, ValueError):
        return None
    return text if _SHA.fullmatch(text) else None


async def resolve(git: Git, at: Path, branch: str) -> str | None:
    """The commit of a branch."""
    if not is_branch_name(branch):
        return None
    if (loose := loose_ref(at, f"refs/heads/{branch}")) is not None:
        return loose
    found = await git.run("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}^{{commit}}", at=at, check=False)
    return found.text.strip() or None


def _safe(id: str) -> str:
    if not id or not all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in id):
        raise InvalidRequest("this is not an id of a repository")
    return id
