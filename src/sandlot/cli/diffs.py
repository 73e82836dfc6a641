"""Prints diffs: as git writes them, in colour on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sandlot.cli import output

_HEADERS = (
    "diff ",
    "index ",
    "--- ",
    "+++ ",
    "new file",
    "deleted file",
    "similarity ",
    "rename ",
    "old mode",
    "new mode",
)


def print_diff(record: dict[str, Any]) -> None:
    """`record` is what the API tells of a pull request's or a task's changes."""
    for file in record["files"]:
        for line in patch_lines(file["patch"] or f"{file['status']} {file['path']} (not shown)\n"):
            print(line)
    if record["truncated"]:
        output.warn("there is more than is shown here")


def print_stat(record: dict[str, Any]) -> None:
    """One line for each file, as `git diff --stat` has them."""
    files = record["files"]
    width = max((len(_name(file)) for file in files), default=0)
    for file in files:
        count = "binary" if file["binary"] else counts(file["added"], file["removed"])
        print(f" {output.plain(_name(file)).ljust(width)} | {count}")
    added, removed = (sum(file[name] for file in files) for name in ("added", "removed"))
    print(f" {len(files)} file{'s' if len(files) != 1 else ''} changed, +{added} -{removed}")


def patch_lines(patch: str) -> Iterator[str]:
    in_hunk = False
    for line in output.plain(patch).splitlines():
        if line.startswith("@@"):
            in_hunk = True
            yield output.paint(line, "cyan")
        elif line.startswith("diff "):
            in_hunk = False
            yield output.paint(line, "bold")
        elif not in_hunk and line.startswith(_HEADERS):
            yield output.paint(line, "bold")
        elif line.startswith("+"):
            yield output.paint(line, "green")
        elif line.startswith("-"):
            yield output.paint(line, "red")
        else:
            yield line


def _name(file: dict[str, Any]) -> str:
    return f"{file['old_path']} => {file['path']}" if file["old_path"] else str(file["path"])


def counts(added: int, removed: int) -> str:
    return f"{output.paint(f'+{added}', 'green')} {output.paint(f'-{removed}', 'red')}"
