"""Differences and commits, read from git's output, bounded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from sandlot.platform.git.commands import Git
from sandlot.platform.git.records import Changes, Commit, FileDiff, TaskDiff

MAX_FILES = 2000
MAX_PATCH = 4 << 20
MAX_FILE_PATCH = 256 << 10
MAX_COMMITS = 500
_STATUS = {"A": "added", "M": "modified", "D": "deleted", "R": "renamed", "C": "added", "T": "modified"}
_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color", "-M", "--end-of-options")
_FIELDS = "%H%x1f%an%x1f%ae%x1f%at%x1f%s%x1f%b%x1e"


async def diff(git: Git, at: Path, old: str, new: str) -> TaskDiff:
    """From commit to commit. Patches of files that are very long are left out, and so are files beyond a limit."""
    raw = await git.run("diff", "--raw", "-z", "--abbrev=40", *_PLAIN, old, new, at=at)
    counted = await git.run("diff", "--numstat", "-z", *_PLAIN, old, new, at=at)
    shown = await git.run("diff", "-p", "--src-prefix=a/", "--dst-prefix=b/", *_PLAIN, old, new, at=at, limit=MAX_PATCH)
    entries, counts = _entries(raw.text), _counts(counted.text)
    sections = _sections(shown.text)
    if shown.truncated and sections:
        sections.pop()  # the last one may be cut
    files: list[FileDiff] = []
    truncated = raw.truncated or counted.truncated or shown.truncated or len(entries) > MAX_FILES
    place = 0
    for (letter, path, old_path), (added, removed, binary) in zip(entries[:MAX_FILES], counts, strict=False):
        take = 2 if letter == "T" else 1  # a change of type is shown as a removal and an addition
        patch: str | None = "".join(sections[place : place + take]) if place + take <= len(sections) else None
        place += take
        if patch is not None and len(patch) > MAX_FILE_PATCH:
            patch, truncated = None, True
        files.append(
            FileDiff(
                path=path,
                old_path=old_path,
                status=_STATUS.get(letter, "modified"),
                added=added,
                removed=removed,
                binary=binary,
                patch=None if binary else patch,
            )
        )
    return TaskDiff(base=old, head=new, files=tuple(files), truncated=truncated)


async def patch(git: Git, at: Path, old: str, new: str, limit: int = 32 << 20) -> bytes:
    return (await git.run("diff", "-p", "--binary", *_PLAIN, old, new, at=at, limit=limit)).stdout


async def changes(git: Git, at: Path, old: str, new: str) -> Changes:
    counts = _counts((await git.run("diff", "--numstat", "-z", *_PLAIN, old, new, at=at)).text)
    return Changes(
        files=len(counts), added=sum(count[0] for count in counts), removed=sum(count[1] for count in counts)
    )


async def commits(git: Git, at: Path, old: str, new: str) -> Sequence[Commit]:
    """Newest first."""
    span = f"{old}..{new}"
    result = await git.run("log", f"--max-count={MAX_COMMITS}", f"--format={_FIELDS}", "--end-of-options", span, at=at)
    found = []
    for entry in result.text.split("\x1e"):
        parts = entry.strip("\n").split("\x1f")
        if len(parts) == 6:
            sha, author, email, at_s, subject, body = parts
            when = datetime.fromtimestamp(int(at_s), UTC)
            found.append(Commit(sha=sha, author=author, email=email, at=when, subject=subject, body=body.strip()))
    return found


def _entries(text: str) -> list[tuple[str, str, str | None]]:
    """Of `--raw -z`: the letter of the status, the path, and the old one of a rename."""
    fields = text.split("\0")
    found: list[tuple[str, str, str | None]] = []
    index = 0
    while index < len(fields) and fields[index].startswith(":"):
        letter = fields[index].rsplit(" ", 1)[-1][:1]
        if letter in "RC" and index + 2 < len(fields):
            found.append((letter, fields[index + 2], fields[index + 1]))
            index += 3
        elif index + 1 < len(fields):
            found.append((letter, fields[index + 1], None))
            index += 2
        else:
            break
    return found


def _counts(text: str) -> list[tuple[int, int, bool]]:
    """Of `--numstat -z`: lines added and removed; binary files have none."""
    fields = text.split("\0")
    found: list[tuple[int, int, bool]] = []
    index = 0
    while index < len(fields):
        parts = fields[index].split("\t", 2)
        if len(parts) != 3:
            break
        added, removed, path = parts
        binary = added == "-"
        found.append((0, 0, True) if binary else (int(added), int(removed), False))
        index += 1 if path else 3  # a rename has its two paths in fields of their own
    return found


def _sections(text: str) -> list[str]:
    """One for each file. No line of a patch begins like this but the first of a file."""
    return [part for part in re.split(r"(?m)^(?=diff --git )", text) if part]
