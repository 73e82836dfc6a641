"""The tools that find things: directories, names that match a pattern, lines that match an expression."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from fastmcp.exceptions import ToolError
from pydantic import Field

from tools.texts import MOST_SHOWN, cut
from tools.workspace import Workspace, telling

MOST_ENTRIES = 1000
MOST_SECONDS = 30.0
MOST_LINE = 500
PathIn = Annotated[
    str, Field(description="Absolute, or relative to the home directory.", min_length=1, max_length=4096)
]


class Searching:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def tools(self) -> Sequence[Any]:
        return (self.list_directory, self.glob, self.grep)

    def list_directory(
        self,
        path: PathIn = ".",
        depth: Annotated[int, Field(ge=1, le=10, description="How many levels below it to show.")] = 1,
    ) -> str:
        """List a directory: directories end with a slash, files come with their size in bytes."""
        where = self._workspace.path(path)
        with telling("list", where):
            lines: list[str] = []
            for line in _tree(where, depth, ""):
                if len(lines) >= MOST_ENTRIES:
                    lines.append(f"… only the first {MOST_ENTRIES} entries; list a directory below it")
                    break
                lines.append(line)
        return "\n".join(lines) or "(the directory is empty)"

    def glob(
        self,
        pattern: Annotated[str, Field(description="For example **/*.py.", min_length=1, max_length=4096)],
        path: PathIn = ".",
    ) -> str:
        """Find files by a pattern, the latest change first."""
        where = self._workspace.directory(path)
        with telling("search", where):
            found = matching(where, pattern)
        lines = found[:MOST_ENTRIES]
        if len(found) > MOST_ENTRIES:
            lines.append(f"… and {len(found) - MOST_ENTRIES} more")
        return "\n".join(lines) or "no file matches"

    def grep(
        self,
        pattern: Annotated[str, Field(description="A regular expression.", min_length=1, max_length=4096)],
        path: PathIn = ".",
        include: Annotated[str | None, Field(description="Only files like this, for example *.py.")] = None,
        ignore_case: bool = False,
        fixed: Annotated[bool, Field(description="The pattern is plain text.")] = False,
        context: Annotated[int, Field(ge=0, le=20, description="Lines around each match.")] = 0,
        files_only: Annotated[bool, Field(description="Only names of files.")] = False,
        limit: Annotated[int, Field(ge=1, le=5000, description="Most lines to show.")] = 500,
    ) -> str:
        """Search the contents of files. What git ignores is left out where ripgrep is installed."""
        where = self._workspace.path(path)
        if not where.exists():
            raise ToolError(f"{where}: there is no such file or directory")
        flags = [
            *(["-i"] if ignore_case else []),
            *(["-F"] if fixed else []),
            *([f"-C{context}"] if context else []),
            *(["-l"] if files_only else []),
        ]
        program = shutil.which("rg")
        if program:
            command = [
                program,
                "--no-config",
                "--no-messages",
                "--color=never",
                "-nH",
                "--no-heading",
                "--hidden",
                "-g!.git",
                *flags,
            ]
            command += [f"-g{include}"] if include else []
        else:
            command = ["grep", "-rnHIs", "--color=never", "--exclude-dir=.git", *flags, *([] if fixed else ["-E"])]
            command += [f"--include={include}"] if include else []
        return _searched([*command, "-e", pattern, "--", str(where)], limit)


def matching(root: Path, pattern: str) -> list[str]:
    """Files below `root` that match, the latest change first; links to directories are not followed. Raises `ToolError`."""
    deadline = time.monotonic() + MOST_SECONDS
    wanted = Path(pattern).expanduser()
    if wanted.is_absolute():
        root, wanted = Path(wanted.anchor), wanted.relative_to(wanted.anchor)
    found: list[tuple[float, str]] = []
    try:
        for place in root.glob(str(wanted)):
            if time.monotonic() > deadline:
                raise ToolError(f"searching {root} took more than {MOST_SECONDS:.0f} s; name a directory below it")
            if ".git" not in place.parts[:-1] and place.is_file():
                with contextlib.suppress(FileNotFoundError):  # gone meanwhile
                    found.append((place.lstat().st_mtime, str(place)))
    except (ValueError, NotImplementedError) as error:
        raise ToolError(f"{pattern!r} is not a pattern for files: {error}") from error
    return [one for _, one in sorted(found, key=lambda entry: (-entry[0], entry[1]))]


def _tree(where: Path, depth: int, indent: str) -> Iterator[str]:
    with os.scandir(where) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        if entry.is_symlink():
            yield f"{indent}{entry.name} -> {os.readlink(entry.path)}"  # noqa: PTH115
        elif entry.is_dir():
            yield f"{indent}{entry.name}/"
            if depth > 1:
                try:
                    yield from _tree(Path(entry.path), depth - 1, indent + "  ")
                except PermissionError:
                    yield f"{indent}  (may not be read)"
        else:
            yield f"{indent}{entry.name}  {_size(entry)}"


def _size(entry: os.DirEntry[str]) -> str:
    try:
        return str(entry.stat().st_size)
    except OSError:
        return "?"


def _searched(command: list[str], limit: int) -> str:
    """What a search program says, up to so many lines; it is ended when there is enough, or after a while."""
    lines: list[str] = []
    size, cut_short = 0, ""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    timer = _Timer(process)
    with process, timer:
        assert process.stdout is not None and process.stderr is not None
        while raw := process.stdout.readline(1 << 16):
            line = raw.decode("utf-8", "replace").rstrip("\n")
            lines.append(line if len(line) <= MOST_LINE else f"{line[:MOST_LINE]} …")
            size += len(lines[-1])
            if len(lines) >= limit or size >= MOST_SHOWN:
                cut_short = f"… only the first {len(lines)} lines; narrow the search"
                process.kill()
                break
        problem = process.stderr.read(4000).decode("utf-8", "replace").strip() if not cut_short else ""
        ended = process.wait()
    if timer.expired:
        cut_short = f"… the search was ended after {MOST_SECONDS:.0f} s; narrow it"
    elif ended > 1 and not lines:
        raise ToolError(f"the search failed: {cut(problem, 1000)}")
    return "\n".join([*lines, *([cut_short] if cut_short else [])]) or "nothing matches"


class _Timer:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        import threading

        self.expired = False
        self._process = process
        self._timer = threading.Timer(MOST_SECONDS, self._expire)

    def _expire(self) -> None:
        self.expired = True
        self._process.kill()

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
