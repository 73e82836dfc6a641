"""What an attempt has handed in, as the git server has it: read, and made into commits of the branch, without a work tree."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sandlot.platform.core.errors import Unavailable
from sandlot.platform.git.commands import Git, GitFailed
from sandlot.platform.git.mirrors import loose_ref
from sandlot.platform.git.records import Changes

SAVED = "sandlot: work in progress"  # the subject of a commit that is none of the branch's own
MAX_COMMITS, MAX_PATHS = 500, 2000
_FIELDS = "%H%x1f%T%x1f%P%x1f%s%x1e"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedCommit:
    sha: str
    tree: str
    parents: tuple[str, ...]
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Counted from where it left its base. `commits` are the newest first."""

    head: str
    base: str  # where the base is now
    fork: str
    commits: tuple[SubmittedCommit, ...] = ()
    paths: tuple[str, ...] = ()
    changes: Changes = field(default_factory=Changes)

    @property
    def is_behind(self) -> bool:
        """The base has commits that it lacks."""
        return self.fork != self.base

    @property
    def saved(self) -> SubmittedCommit | None:
        """The commit that holds what nobody has committed, if there is something."""
        return self.commits[0] if self.commits and self.commits[0].subject == SAVED else None

    @property
    def subjects(self) -> tuple[str, ...]:
        """Of the commits that somebody made."""
        return tuple(commit.subject for commit in self.commits[1 if self.saved is not None else 0 :])


async def read_submission(git: Git, at: Path, ref: str, base: str) -> Submission | None:
    """None until something was handed in."""
    head = await ref_commit(git, at, ref)
    if head is None:
        return None
    fork = base
    if head != base:
        found = await git.run("merge-base", base, head, at=at, check=False)
        fork = found.text.strip() or base
    if fork == head:
        return Submission(head=head, base=base, fork=fork)
    log = ("log", f"--max-count={MAX_COMMITS}", f"--format={_FIELDS}", "--end-of-options", f"{fork}..{head}")
    plain = ("--no-ext-diff", "--no-textconv", "--no-color", "-M", "--end-of-options")
    listed, counted = await asyncio.gather(
        git.run(*log, at=at), git.run("diff", "--numstat", "-z", *plain, fork, head, at=at)
    )
    paths, changes = _counted(counted.text)
    return Submission(head=head, base=base, fork=fork, commits=_commits(listed.text), paths=paths, changes=changes)


async def ref_commit(git: Git, at: Path, ref: str) -> str | None:
    found = loose_ref(at, ref)
    if found is None:
        asked = await git.run("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}", at=at, check=False)
        found = asked.text.strip() or None
    return found


async def commit_submission(
    git: Git, at: Path, ref: str, found: Submission, message: str, *, author: tuple[str, str], squash: bool
) -> Submission:
    """Commit what was only saved; with `squash`, together with what was committed. Raises `Unavailable` if `ref` moved meanwhile."""
    last = found.commits[0]
    parent = found.fork if squash or not last.parents else last.parents[0]
    name, email = author
    who = {
        f"GIT_{role}_{what}": value
        for role in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", name), ("EMAIL", email))
    }
    made = await git.run(
        "commit-tree",
        *("-p", parent, "-F", "-", last.tree),
        at=at,
        doing="commit the changes",
        input=message.replace("\0", "").encode(errors="replace"),
        env=git.environment(None, **who),
    )
    sha = made.text.strip()
    try:
        await git.run("update-ref", ref, sha, found.head, at=at, doing="commit the changes")
    except GitFailed as error:
        raise Unavailable(str(error)) from error
    commit = SubmittedCommit(sha=sha, tree=last.tree, parents=(parent,), subject=message.split("\n", 1)[0])
    return replace(found, head=sha, commits=(commit, *(() if squash else found.commits[1:])))


def _commits(text: str) -> tuple[SubmittedCommit, ...]:
    made = []
    for entry in text.split("\x1e"):
        parts = entry.strip("\n").split("\x1f")
        if len(parts) == 4:
            sha, tree, parents, subject = parts
            made.append(SubmittedCommit(sha=sha, tree=tree, parents=tuple(parents.split()), subject=subject))
    return tuple(made)


def _counted(text: str) -> tuple[tuple[str, ...], Changes]:
    """Of `--numstat -z`. A rename has its two paths in fields of their own; a binary file has no lines."""
    fields, paths, count, added, removed = text.split("\0"), list[str](), 0, 0, 0
    index = 0
    while index < len(fields) and len(parts := fields[index].split("\t", 2)) == 3:
        names: Sequence[str] = [parts[2]] if parts[2] else fields[index + 1 : index + 3]
        index += 1 if parts[2] else 3
        count += 1
        added += int(parts[0]) if parts[0] != "-" else 0
        removed += int(parts[1]) if parts[1] != "-" else 0
        if len(paths) < MAX_PATHS:
            paths += names
    return tuple(sorted(set(paths))), Changes(files=count, added=added, removed=removed)
