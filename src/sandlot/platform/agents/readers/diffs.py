"""Changes of files as unified diffs, from what agents tell of them; in one pass, whatever they tell."""

from __future__ import annotations

from dataclasses import dataclass

MOST_DIFF = 30_000
CONTEXT = 3


@dataclass(frozen=True, slots=True)
class FileEdit:
    """`added` and `removed` count lines; None where the agent tells only that a file was changed."""

    path: str
    added: int | None = None
    removed: int | None = None
    diff: str = ""


def replaced(path: str, old: str, new: str) -> FileEdit:
    """The lines that differ, between what is common at the beginning and at the end."""
    before, after = old.splitlines(), new.splitlines()
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    rest = min(len(before), len(after)) - same
    end = 0
    while end < rest and before[-1 - end] == after[-1 - end]:
        end += 1
    gone, come = before[same : len(before) - end], after[same : len(after) - end]
    first = max(same - CONTEXT, 0)
    lines = [f" {line}" for line in before[first:same]]
    lines += [f"-{line}" for line in gone] + [f"+{line}" for line in come]
    lines += [f" {line}" for line in before[len(before) - end :][:CONTEXT]]
    return FileEdit(path, len(come), len(gone), cut("\n".join(lines)))


def patched(path: str, patch: str) -> FileEdit:
    """A diff or patch as it is, with its lines counted."""
    added = removed = 0
    for line in patch.splitlines():
        added += line.startswith("+") and not line.startswith("+++")
        removed += line.startswith("-") and not line.startswith("---")
    return FileEdit(path, added, removed, cut(patch))


def cut(diff: str) -> str:
    return diff if len(diff) <= MOST_DIFF else diff[:MOST_DIFF] + "\n…"
