"""What the git service takes and gives."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

MIB = 1 << 20
WORKFLOWS = ".github/workflows"


@dataclass(frozen=True, slots=True, kw_only=True)
class PushPolicy:
    """What a task may push. Its own branch, `task-{id}`, is always among the refs."""

    refs: tuple[str, ...] = ()  # further whole names, such as refs/heads/docs
    rewritable: tuple[str, ...] = ()  # further whole names, whose history may be rewritten
    allow_force: bool = False
    max_bytes: int = 512 * MIB  # of one push
    protect: tuple[str, ...] = (WORKFLOWS,)  # paths below which nothing may change


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A task's repository, ready to be cloned. `notes` tell what does not work, in sentences."""

    base: str
    base_sha: str
    branch: str
    credential: str
    path: Path
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Branch:
    name: str
    sha: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    sha: str
    subject: str
    body: str
    author: str
    email: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDiff:
    path: str
    status: str  # added, modified, deleted, renamed
    added: int
    removed: int
    old_path: str | None = None
    binary: bool = False
    patch: str | None = None  # None: binary, or too long to be shown


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDiff:
    """What a branch changes since it left its base."""

    base: str
    head: str
    files: tuple[FileDiff, ...] = ()
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    files: int = 0
    added: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarded:
    """A branch that is at the forge now. `was` is where the forge had it before."""

    branch: str
    sha: str
    was: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseMove:
    """Where the base branch was when the task last looked, and where it is now."""

    base: str
    old: str
    new: str

    @property
    def has_moved(self) -> bool:
        return self.old != self.new
