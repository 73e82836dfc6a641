"""Git for tasks: a bare repository for each, over the mirror; what was pushed to it, and the way from there to the forge."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from sandlot.platform.core.errors import Conflict, HeadMoved, InvalidRequest, NotFound, PlatformError
from sandlot.platform.core.forges import GitRemote, Repository, is_branch_name
from sandlot.platform.git import diffs, pre_receive
from sandlot.platform.git.base_packs import BasePacks
from sandlot.platform.git.commands import Git
from sandlot.platform.git.http_backend import GitTarget, HttpBackend, answer
from sandlot.platform.git.mirrors import Mirrors, Remotes, resolve
from sandlot.platform.git.records import BaseMove, Branch, Changes, Commit, Forwarded, Prepared, PushPolicy, TaskDiff
from sandlot.platform.git.submissions import ref_commit

STATE = "sandlot-task.json"
RESULTS = "refs/sandlot/attempt-"  # followed by its number: what an attempt came to
_TASK = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")


class GitService:
    """`secret` is what the tasks' credentials are made from; `remotes` knows the way to a repository."""

    def __init__(self, *, root: Path, secret: str, remotes: Remotes, at_once: int = 24) -> None:
        self.git = Git(root)
        self._root, self._secret, self._remotes = root, secret, remotes
        self.mirrors = Mirrors(self.git, root / "repositories", remotes)
        self.base_packs = BasePacks(self.git, self.mirrors)
        self.backend = HttpBackend(self.git, at_once)

    async def open(self) -> None:
        """Write git's configuration and the hooks."""
        self.git.open()
        hooks = self._root / "hooks"
        hooks.mkdir(exist_ok=True)
        script = hooks / ".pre-receive.new"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{pre_receive.__file__}"\n')
        script.chmod(0o755)
        script.replace(hooks / "pre-receive")

    async def prepare(
        self, task_id: str, repository: Repository, base: str | None = None, policy: PushPolicy | None = None
    ) -> Prepared:
        """The task's repository at the tip of `base`: made, or found as it is. Safe to repeat."""
        path = self._path(task_id)
        if not path.exists():
            await self.mirrors.refresh(repository)
            await self._create(task_id, repository, base or repository.default_branch, policy or PushPolicy())
        state = self._state(task_id)
        return Prepared(
            base=state["base"],
            base_sha=state["base_sha"],
            branch=branch_of(task_id),
            credential=self.credential(task_id),
            path=path,
            notes=tuple(state["notes"]),
        )

    async def _create(self, task_id: str, repository: Repository, base: str, policy: PushPolicy) -> None:
        mirror, path = self.mirrors.path(repository), self._path(task_id)
        sha = await self.mirrors.commit_of(repository, base)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_name(f".{path.name}.new")
        await asyncio.to_thread(shutil.rmtree, temporary, True)
        _empty(temporary, base, sha)
        (temporary / "objects" / "info" / "alternates").write_text(f"{mirror / 'objects'}\n")
        (temporary / "config").write_text(self._config(policy))
        notes = await _notes(self.git, temporary, sha)
        state = {"repository": repository.id, "base": base, "base_sha": sha, "notes": notes, "forwarded": None}
        _write(temporary / STATE, state)
        _write(temporary / pre_receive.POLICY, _policy(task_id, policy, sha))
        temporary.rename(path)

    def _config(self, policy: PushPolicy) -> str:
        return (
            "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
            f'\thooksPath = "{self._root / "hooks"}"\n'
            "[http]\n\treceivepack = true\n"
            "[gc]\n\tauto = 0\n"
            "[uploadpack]\n\tallowFilter = true\n"
            "[receive]\n\tfsckObjects = true\n\tdenyDeletes = true\n"
            f"\tdenyNonFastForwards = {'false' if policy.allow_force else 'true'}\n"
            f"\tmaxInputSize = {policy.max_bytes}\n"
        )

    async def allow(self, task_id: str, policy: PushPolicy) -> None:
        """Change what the task may push."""
        path = self._known(task_id)
        (path / "config").write_text(self._config(policy))
        _write(path / pre_receive.POLICY, _policy(task_id, policy, self._state(task_id)["base_sha"]))

    def credential(self, task_id: str) -> str:
        """What the task's git sends as password. It opens this task's repository and nothing else."""
        _check(task_id)
        return "slt_" + hmac.new(self._secret.encode(), f"git:{task_id}".encode(), hashlib.sha256).hexdigest()[:40]

    def handler(self, task_id: str) -> ASGIApp:
        """Serves exactly this task's repository, at any path that ends as git's requests do."""
        credential, path = self.credential(task_id), self._path(task_id)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                return
            given = password_of(scope)
            if given is None or not hmac.compare_digest(given.encode(), credential.encode()):
                challenge = {b"www-authenticate": b'Basic realm="sandlot"'}
                return await answer(send, 401, "this repository wants its task's own credential", challenge)
            if not path.exists():
                return await answer(send, 404, "this task has no repository any more")
            policy = json.loads((path / pre_receive.POLICY).read_text())
            target = GitTarget(path=path, may_push=True, max_bytes=int(policy["max_bytes"]), user=branch_of(task_id))
            await self.backend.serve(target, scope, receive, send)

        return app

    async def head(self, task_id: str, attempt: int | None = None) -> str | None:
        """The commit of the task's branch, or what one attempt came to; None until it was pushed."""
        if attempt is None:
            return await resolve(self.git, self._known(task_id), branch_of(task_id))
        return await ref_commit(self.git, self._known(task_id), result_ref(attempt))

    async def adopt(self, task_id: str, attempt: int) -> str:
        """Let the task's branch be what this attempt came to. Safe to repeat. Raises `NotFound`."""
        head = await self.head(task_id, attempt)
        if head is None:
            raise NotFound(f"attempt {attempt} of task {task_id!r} has brought nothing")
        await self.git.run("update-ref", f"refs/heads/{branch_of(task_id)}", head, at=self._known(task_id))
        return head

    async def commits(self, task_id: str, attempt: int | None = None) -> Sequence[Commit]:
        """What the task's branch has and its base lacks, newest first."""
        head = await self.head(task_id, attempt)
        if head is None:
            return []
        return await diffs.commits(self.git, self._known(task_id), await self._fork(task_id, head), head)

    async def diff(self, task_id: str, attempt: int | None = None) -> TaskDiff:
        head = await self.head(task_id, attempt)
        if head is None:
            sha = self._state(task_id)["base_sha"]
            return TaskDiff(base=sha, head=sha)
        return await diffs.diff(self.git, self._known(task_id), await self._fork(task_id, head), head)

    async def patch(self, task_id: str, attempt: int | None = None) -> bytes:
        head = await self.head(task_id, attempt)
        if head is None:
            return b""
        return await diffs.patch(self.git, self._known(task_id), await self._fork(task_id, head), head)

    async def numstat(self, task_id: str, attempt: int | None = None) -> Changes:
        head = await self.head(task_id, attempt)
        if head is None:
            return Changes()
        return await diffs.changes(self.git, self._known(task_id), await self._fork(task_id, head), head)

    async def _fork(self, task_id: str, head: str) -> str:
        """Where the branch left its base."""
        base = str(self._state(task_id)["base_sha"])
        found = await self.git.run("merge-base", base, head, at=self._known(task_id), check=False)
        return found.text.strip() or base

    async def fetch_base(self, task_id: str, repository: Repository) -> BaseMove:
        """Bring the task's base to where the forge has it now; the task's branch stays."""
        path, state = self._owned(task_id, repository), self._state(task_id)
        await self.mirrors.refresh(repository, force=True)
        base, old = state["base"], state["base_sha"]
        new = await self.mirrors.commit_of(repository, base)
        if new != old:
            await self.git.run("update-ref", f"refs/heads/{base}", new, at=path)
            policy = json.loads((path / pre_receive.POLICY).read_text())
            _write(path / STATE, {**state, "base_sha": new})
            _write(path / pre_receive.POLICY, {**policy, "base_sha": new})
        return BaseMove(base=base, old=old, new=new)

    async def forward(self, task_id: str, repository: Repository) -> Forwarded:
        """Push the task's branch to the forge, with a token of this operation. Safe to repeat.

        Raises `Conflict` if somebody else moved the branch there, `NotFound` if the task has pushed nothing.
        """
        async with self.mirrors.turn(repository):
            return await self._forward(task_id, repository)

    async def _forward(self, task_id: str, repository: Repository) -> Forwarded:
        path, branch = self._owned(task_id, repository), branch_of(task_id)
        head = await self.head(task_id)
        if head is None:
            raise NotFound(f"task {task_id!r} has pushed nothing to {branch}")
        state = self._state(task_id)
        remote = await self._remotes(repository, True)
        ref = f"refs/heads/{branch}"
        was = await _remote_sha(self.git, path, remote, ref)
        if was != head:
            known = {None, state["forwarded"], state.get("forwarding")}
            if was not in known and not await _is_ancestor(self.git, path, was or "", head):
                raise Conflict(f"{branch} was changed at the forge by somebody else; merge or delete it there first")
            _write(path / STATE, {**state, "forwarding": head})  # known again if we end in the middle
            lease = f"--force-with-lease={ref}:{was or ''}"
            options = ("--quiet", "--no-verify", lease, "--end-of-options")
            doing = f"push {branch} to repository {repository.name!r}"
            await self.git.transfer("push", *options, remote.url, f"{head}:{ref}", at=path, remote=remote, doing=doing)
        _write(path / STATE, {**state, "forwarded": head, "forwarding": None})
        return Forwarded(branch=branch, sha=head, was=was)

    async def deliver(self, task_id: str, repository: Repository, branch: str, expected: str) -> Forwarded:
        """Push what the task came to onto a branch of others, which is still at `expected`. Safe to repeat.

        Raises `HeadMoved` if it is not, and nothing has changed.
        """
        if not is_branch_name(branch):
            raise InvalidRequest("this is not the name of a branch")
        async with self.mirrors.turn(repository):
            path, ref = self._owned(task_id, repository), f"refs/heads/{branch}"
            head = await self.head(task_id)
            if head is None:
                raise NotFound(f"task {task_id!r} has pushed nothing")
            remote = await self._remotes(repository, True)
            was = await _remote_sha(self.git, path, remote, ref)
            if was == head:
                return Forwarded(branch=branch, sha=head, was=was)
            if was != expected or not await _is_ancestor(self.git, path, expected, head):
                raise HeadMoved(f"{branch} has moved on from {expected[:10]}: stopped, and nothing was pushed")
            options = ("--quiet", "--no-verify", f"--force-with-lease={ref}:{expected}", "--end-of-options")
            doing = f"push to {branch} of repository {repository.name!r}"
            try:
                await self.git.transfer(
                    "push", *options, remote.url, f"{head}:{ref}", at=path, remote=remote, doing=doing
                )
            except PlatformError:
                if await _remote_sha(self.git, path, remote, ref) in (expected, head):
                    raise
                raise HeadMoved(f"{branch} moved while it was pushed to: stopped, and nothing was pushed") from None
        return Forwarded(branch=branch, sha=head, was=was)

    async def branches(self, repository: Repository) -> Sequence[Branch]:
        return await self.mirrors.branches(repository)

    async def discard(self, task_id: str) -> None:
        """Remove the task's repository; nothing happens if there is none."""
        path = self._path(task_id)
        gone = path.with_name(f".{path.name}.gone")
        if path.exists():
            await asyncio.to_thread(shutil.rmtree, gone, True)
            path.rename(gone)
        await asyncio.to_thread(shutil.rmtree, gone, True)

    def _path(self, task_id: str) -> Path:
        _check(task_id)
        return self._root / "tasks" / f"{task_id}.git"

    def _known(self, task_id: str) -> Path:
        path = self._path(task_id)
        if not path.exists():
            raise NotFound(f"task {task_id!r} has no repository on this host")
        return path

    def _owned(self, task_id: str, repository: Repository) -> Path:
        path = self._known(task_id)
        if self._state(task_id)["repository"] != repository.id:
            raise InvalidRequest(f"task {task_id!r} works on another repository than {repository.name!r}")
        return path

    def _state(self, task_id: str) -> dict[str, Any]:
        state: dict[str, Any] = json.loads((self._known(task_id) / STATE).read_text())
        return state


def branch_of(task_id: str) -> str:
    return f"task-{task_id}"


def result_ref(attempt: int) -> str:
    return f"{RESULTS}{attempt}"


def password_of(scope: Scope) -> str | None:
    """Of `Authorization: Basic`, or the token of `Bearer`."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, rest = value.partition(b" ")
            if kind.lower() == b"bearer":
                return str(rest.decode("latin-1").strip())
            if kind.lower() == b"basic":
                try:
                    return base64.b64decode(rest.strip(), validate=True).decode("latin-1").partition(":")[2]
                except (binascii.Error, ValueError):
                    return None
    return None


def _check(task_id: str) -> None:
    if not _TASK.fullmatch(task_id):
        raise InvalidRequest("this is not an id of a task")


def _policy(task_id: str, policy: PushPolicy, base_sha: str) -> dict[str, Any]:
    refs = [f"refs/heads/{branch_of(task_id)}", *policy.refs, *policy.rewritable]
    return {**asdict(policy), "refs": refs, "protect": list(policy.protect), "base_sha": base_sha}


def _write(path: Path, record: Mapping[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(json.dumps(record))
    temporary.replace(path)


async def _remote_sha(git: Git, path: Path, remote: GitRemote, ref: str) -> str | None:
    if remote.is_here:
        return await resolve(git, Path(remote.url), ref.removeprefix("refs/heads/"))
    listed = await git.transfer(
        "ls-remote",
        "--end-of-options",
        remote.url,
        ref,
        at=path,
        remote=remote,
        doing="look at the forge's branches",
    )
    return next((line.split("\t")[0] for line in listed.text.splitlines() if line.endswith(f"\t{ref}")), None)


async def _is_ancestor(git: Git, path: Path, old: str, new: str) -> bool:
    return (await git.run("merge-base", "--is-ancestor", old, new, at=path, check=False)).status == 0


def _empty(path: Path, base: str, sha: str) -> None:
    """A bare repository with one branch, as `git init` makes it, without a process."""
    for folder in ("objects/info", "objects/pack", "refs/tags"):
        (path / folder).mkdir(parents=True)
    ref = path / "refs" / "heads" / base
    ref.parent.mkdir(parents=True)
    ref.write_text(f"{sha}\n")
    (path / "HEAD").write_text(f"ref: refs/heads/{base}\n")


async def _notes(git: Git, at: Path, sha: str) -> list[str]:
    """What of this repository does not work in a task, in sentences."""
    found, wanted = [], f"{sha}:.gitmodules\n{sha}:.gitattributes\n".encode()
    read = await git.run("cat-file", "--batch", at=at, input=wanted, limit=1 << 20)
    if not read.text.startswith(f"{sha}:.gitmodules missing"):
        found.append("The repository has submodules: they are not fetched, their directories stay empty.")
    if "filter=lfs" in read.text:
        found.append("The repository keeps files in Git LFS: they are pointers here, their content is not fetched.")
    return found
