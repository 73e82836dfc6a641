"""What the emulated GitHub knows: accounts, tokens, repositories with real git behind them, pull requests, issues, checks."""

from __future__ import annotations

import itertools
import os
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

GIT_ENV = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "GitHub",
    "GIT_AUTHOR_EMAIL": "noreply@github.test",
    "GIT_COMMITTER_NAME": "GitHub",
    "GIT_COMMITTER_EMAIL": "noreply@github.test",
}
LEVELS = ("none", "read", "triage", "write", "maintain", "admin")


def moment() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def git(path: Path, *arguments: str, stdin: bytes | None = None) -> str | None:
    """What git says; None if it fails."""
    argv = ["git", "--git-dir", str(path), *arguments]
    done = subprocess.run(argv, env=GIT_ENV, input=stdin, capture_output=True, timeout=60)
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None


@dataclass
class User:
    login: str
    id: int
    type: str = "User"


@dataclass
class Token:
    """A person's token may what the person may; an installation's only what it was made for."""

    user: User
    repositories: frozenset[str] | None = None
    permissions: dict[str, str] | None = None
    until: datetime | None = None


@dataclass
class Comment:
    id: int
    user: User
    body: str
    created_at: str
    path: str | None = None
    line: int | None = None
    commit_id: str | None = None
    reply_to: int | None = None
    resolved: bool = False
    review: int | None = None


@dataclass
class EmulatedIssue:
    """An issue; every pull request is one, too."""

    number: int
    id: int
    title: str
    body: str | None
    user: User
    created_at: str
    state: str = "open"
    labels: list[str] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    closed_at: str | None = None


@dataclass
class EmulatedPull(EmulatedIssue):
    head: str = ""
    base: str = ""
    fork: str | None = None  # the owner of the repository that its head is in
    draft: bool = False
    merged_at: str | None = None
    merge_sha: str | None = None
    last_head: str | None = None  # once the branch is gone
    last_base: str | None = None
    reviewers: list[User] = field(default_factory=list)
    review_comments: list[Comment] = field(default_factory=list)
    reviews: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Job:
    id: int
    name: str
    conclusion: str
    log: str | None  # None: it is gone
    steps: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class WorkflowRun:
    id: int
    name: str
    path: str
    head_branch: str
    head_sha: str
    conclusion: str
    jobs: list[Job] = field(default_factory=list)


@dataclass
class EmulatedRepository:
    owner: str
    name: str
    id: int
    path: Path
    private: bool = True
    default_branch: str = "main"
    allow: tuple[str, ...] = ("merge", "squash", "rebase")
    has_drafts: bool = True
    permissions: dict[str, str] = field(default_factory=dict)  # of people, by login
    issues: dict[int, EmulatedIssue] = field(default_factory=dict)
    labels: set[str] = field(default_factory=set)
    check_runs: list[dict[str, Any]] = field(default_factory=list)
    statuses: list[dict[str, Any]] = field(default_factory=list)
    runs: dict[int, WorkflowRun] = field(default_factory=dict)
    forks: dict[str, Path] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return f"{self.owner}/{self.name}"

    def tip(self, branch: str, fork: str | None = None) -> str | None:
        return git(self.forks[fork] if fork else self.path, "rev-parse", "--verify", "-q", f"refs/heads/{branch}^0")

    def pull(self, number: int) -> EmulatedPull | None:
        found = self.issues.get(number)
        return found if isinstance(found, EmulatedPull) else None

    def pulls(self) -> list[EmulatedPull]:
        return [each for each in self.issues.values() if isinstance(each, EmulatedPull)]

    def ahead(self, base: str, head: str) -> int:
        return int(git(self.path, "rev-list", "--count", f"{base}..{head}") or 0)


@dataclass
class App:
    id: int
    slug: str
    public_key: str
    permissions: dict[str, str]
    installations: dict[str, int] = field(default_factory=dict)  # by owner


@dataclass
class Fault:
    """What goes wrong with requests like this, so many times. `kind` is a status, or what `faults.py` knows."""

    method: str
    path: str
    kind: str
    times: int = 1
    seconds: int = 1


@dataclass
class Hook:
    url: str
    secret: str
    events: frozenset[str] | None = None


class GitHubState:
    def __init__(self, place: Path) -> None:
        self.place = place
        self._numbers: Iterator[int] = itertools.count(1000)
        self.users: dict[str, User] = {}
        self.tokens: dict[str, Token] = {}
        self.repositories: dict[str, EmulatedRepository] = {}
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str, int]] = []
        self.apps: dict[str, App] = {}
        self.hooks: list[Hook] = []
        self.used, self.limit = 0, 5000
        self.reset_at = int((datetime.now(UTC) + timedelta(hours=1)).timestamp())
        self.url = ""

    def number(self) -> int:
        return next(self._numbers)

    def user(self, login: str, type: str = "User") -> User:
        return self.users.setdefault(login, User(login, self.number(), type))

    def token(self, login: str) -> str:
        value = f"ghp_{secrets.token_hex(18)}"
        self.tokens[value] = Token(self.user(login))
        return value

    def repository(self, full_name: str, **people: str) -> EmulatedRepository:
        """A new one with a first commit; `people` by what they may."""
        owner, name = full_name.split("/")
        self.user(owner)
        path = self.place / owner / f"{name}.git"
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(path)], env=GIT_ENV, check=True)
        git(path, "config", "http.receivepack", "true")
        found = EmulatedRepository(owner, name, self.number(), path)
        self.repositories[full_name.lower()] = found
        found.permissions = {owner: "admin", **people}
        self.commit(found, "main", {"README.md": "hello\n"}, "chore: begin")
        return found

    def commit(
        self, repository: EmulatedRepository, branch: str, files: dict[str, str], message: str = "feat: change"
    ) -> str:
        """A commit on a branch, which is made from the default branch if it is not there. A path of None removes."""
        path = repository.path
        parent = repository.tip(branch) or repository.tip(repository.default_branch)
        index = path / f"index-{secrets.token_hex(4)}"
        env = {**GIT_ENV, "GIT_INDEX_FILE": str(index)}

        def run(*arguments: str, stdin: bytes | None = None) -> str:
            argv = ["git", "--git-dir", str(path), *arguments]
            return subprocess.run(argv, env=env, input=stdin, capture_output=True, check=True).stdout.decode().strip()

        try:
            if parent:
                run("read-tree", parent)
            for name, content in files.items():
                blob = run("hash-object", "-w", "--stdin", stdin=content.encode())
                run("update-index", "--add", "--cacheinfo", f"100644,{blob},{name}")
            tree = run("write-tree")
            parents = ["-p", parent] if parent else []
            made = run("commit-tree", *parents, "-m", message, tree)
            run("update-ref", f"refs/heads/{branch}", made)
            return made
        finally:
            index.unlink(missing_ok=True)

    def issue(self, repository: EmulatedRepository, title: str, body: str, login: str, *labels: str) -> EmulatedIssue:
        number = len(repository.issues) + 1
        made = EmulatedIssue(number, self.number(), title, body, self.user(login), moment(), labels=list(labels))
        repository.issues[number] = made
        return made

    def check(self, repository: EmulatedRepository, sha: str, name: str, conclusion: str | None) -> dict[str, Any]:
        status = "completed" if conclusion else "in_progress"
        made = {
            "id": self.number(),
            "head_sha": sha,
            "name": name,
            "status": status,
            "conclusion": conclusion,
            "started_at": moment(),
            "completed_at": moment() if conclusion else None,
        }
        repository.check_runs.append(made)
        return made

    def app(self, slug: str, public_key: str, **permissions: str) -> App:
        made = App(self.number(), slug, public_key, permissions)
        self.apps[str(made.id)] = made
        self.user(f"{slug}[bot]", "Bot")
        return made

    def fault(self, method: str, path: str, kind: str, times: int = 1, seconds: int = 1) -> None:
        self.faults.append(Fault(method, path, kind, times, seconds))

    def level(self, token: Token | None, repository: EmulatedRepository) -> str:
        """What this token may in this repository."""
        if token is None:
            return "none" if repository.private else "read"
        if token.repositories is not None:
            return "write" if repository.full_name.lower() in token.repositories else "none"
        return repository.permissions.get(token.user.login, "none" if repository.private else "read")
