"""A git service for tests, served on a real port, and a person with a clone of their own."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.platform.world import until

from sandlot.platform.core.forges import ForgeKind, GitRemote, Repository
from sandlot.platform.git.service import GitService
from sandlot.server.http import build_server

NOW = datetime(2030, 5, 1, tzinfo=UTC)
ENV = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}


@dataclass(frozen=True)
class Ran:
    status: int
    output: str


async def git(*arguments: str | Path, at: Path | None = None, **env: str) -> Ran:
    """The git of a person or an agent: no configuration, no questions."""

    def run() -> Ran:
        argv = ["git", *map(str, arguments)]
        done = subprocess.run(argv, cwd=at, env={**ENV, **env}, capture_output=True, timeout=100)
        return Ran(done.returncode, (done.stdout + done.stderr).decode(errors="replace"))

    return await asyncio.to_thread(run)


async def well(*arguments: str | Path, at: Path | None = None, **env: str) -> str:
    ran = await git(*arguments, at=at, **env)
    assert ran.status == 0, ran.output
    return ran.output.strip()


async def commit(at: Path, name: str, content: str | bytes, message: str = "feat: change") -> str:
    path = at / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    await well("add", "-A", at=at)
    await well("commit", "-qm", message, at=at)
    return await well("rev-parse", "HEAD", at=at)


async def new_repository(path: Path, **files: str) -> Path:
    """A bare repository with one commit on main."""
    work = path.with_suffix(".work")
    await well("init", "-q", "-b", "main", work)
    for name, content in {"README.md": "hello\n", **files}.items():
        await commit(work, name, content, "chore: begin")
    await well("clone", "-q", "--bare", work, path)
    return path


def repository(name: str = "app", url: str | None = "https://forge.test/app", **changes: Any) -> Repository:
    values: dict[str, Any] = {"id": f"rp_{name}", "forge": ForgeKind.REMOTE, "default_branch": "main"}
    return Repository(name=name, url=url, created_at=NOW, **{**values, **changes})


class GitWorld:
    """`origin` stands for the forge: a bare repository elsewhere, that the service reaches as a remote."""

    def __init__(self, place: Path) -> None:
        self.place, self.origin, self.repository = place, place / "origin.git", repository()
        self.remotes: list[bool] = []
        self.service = GitService(root=place / "data", secret="of the tests", remotes=self._remote)
        self.url = ""

    async def _remote(self, asked: Repository, write: bool) -> GitRemote:
        self.remotes.append(write)
        return GitRemote(url=str(self.origin))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """`/git/<task>/...`: what a tunnel would route to the handler of one task."""
        task = scope["path"].split("/")[2]
        await self.service.handler(task)(scope, receive, send)

    def clone_url(self, task: str, credential: str | None = None) -> str:
        secret = self.service.credential(task) if credential is None else credential
        return self.url.replace("://", f"://x:{secret}@") + f"/git/{task}/repo.git"

    async def clone(self, task: str, name: str | None = None) -> Path:
        place = self.place / (name or f"clone-{task}")
        await well("clone", "-q", self.clone_url(task), place)
        return place

    async def started(self, task: str, **policy: Any) -> Path:
        """A task's clone, on its branch."""
        from sandlot.platform.git.records import PushPolicy

        await self.service.prepare(task, self.repository, "main", PushPolicy(**policy))
        clone = await self.clone(task)
        await well("checkout", "-qb", f"task-{task}", at=clone)
        return clone


@asynccontextmanager
async def git_world(place: Path) -> AsyncIterator[GitWorld]:
    world = GitWorld(place)
    await new_repository(world.origin)
    await world.service.open()
    server = build_server(world, host="127.0.0.1", port=0)
    server.capture_signals = _nothing  # type: ignore[method-assign,assignment]
    serving = asyncio.ensure_future(server.serve())
    await until(lambda: server.started, what="the git server's start")
    world.url = f"http://127.0.0.1:{server.port}"
    try:
        yield world
    finally:
        server.should_exit = True
        await serving


def _nothing() -> Any:
    import contextlib

    return contextlib.nullcontext()
