"""The tools that read and change files."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from fastmcp.exceptions import ToolError
from fastmcp.utilities.types import Image
from pydantic import BaseModel, Field

from tools.searching import matching
from tools.texts import MOST_SHOWN, cut
from tools.workspace import Workspace, telling

MOST_LINES = 2000
MOST_LINE = 4000  # characters
MOST_EDITED = 16 << 20  # bytes
MOST_IMAGE = 4 << 20
MOST_FILES = 50
IMAGES = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".gif": "gif", ".webp": "webp"}

PathIn = Annotated[
    str, Field(description="Absolute, or relative to the home directory.", min_length=1, max_length=4096)
]


class Edit(BaseModel):
    old: str = Field(description="Text to replace, exactly as it is in the file.", min_length=1)
    new: str = Field(description="What to put there.")
    replace_all: bool = Field(False, description="Replace every occurrence; otherwise there must be exactly one.")


class Files:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def tools(self) -> Sequence[Any]:
        return (self.read_file, self.read_files, self.write_file, self.edit_file, self.multi_edit_file)

    def read_file(
        self,
        path: PathIn,
        offset: Annotated[int, Field(ge=1, description="First line to show.")] = 1,
        limit: Annotated[int, Field(ge=1, le=MOST_LINES, description="Most lines to show.")] = MOST_LINES,
    ) -> Any:
        """Read a text file, or look at an image. Long files come in parts."""
        where = self._workspace.path(path)
        with telling("read", where):
            _check_file(where)
            if where.suffix.lower() in IMAGES:
                return _image(where)
            return _lines(where, offset, limit)

    def read_files(
        self,
        paths: Annotated[list[PathIn], Field(min_length=1, max_length=MOST_FILES, description="Paths or patterns.")],
    ) -> str:
        """Read several text files at once; patterns such as src/**/*.py are allowed."""
        wanted: list[Path] = []
        shown: list[str] = []
        for given in paths:
            found = matching(self._workspace.home, given) if any(sign in given for sign in "*?[") else [given]
            wanted += [self._workspace.path(str(one)) for one in found]
            if not found:
                shown.append(f"==> {given} <==\nno file matches")
        left = [str(one) for one in wanted[MOST_FILES:]]
        most = max(2000, MOST_SHOWN * 2 // max(1, min(len(wanted), MOST_FILES)))
        shown += [f"==> {where} <==\n{self._part(where, most)}" for where in wanted[:MOST_FILES]]
        if left:
            shown.append(f"{len(left)} more files were not read; ask for them by name: {cut(', '.join(left), 1000)}")
        return "\n\n".join(shown)

    def _part(self, where: Path, most: int) -> str:
        try:
            with telling("read", where):
                _check_file(where)
                return cut(_lines(where, 1, MOST_LINES), most)
        except ToolError as error:
            return f"error: {error}"

    def write_file(self, path: PathIn, content: str) -> str:
        """Write a text file whole, with the directories above it."""
        where = self._workspace.path(path)
        data = content.encode("utf-8", "surrogateescape")
        with telling("write", where):
            where.parent.mkdir(parents=True, exist_ok=True)
            _replace(where, data)
        return f"{len(data)} bytes written to {where}"

    def edit_file(self, path: PathIn, old: str, new: str, replace_all: bool = False) -> str:
        """Replace text in a file. `old` must occur exactly once unless `replace_all` is set."""
        return self.multi_edit_file(path, [Edit(old=old, new=new, replace_all=replace_all)] if old else [])

    def multi_edit_file(self, path: PathIn, edits: Annotated[list[Edit], Field(max_length=500)]) -> str:
        """Make several replacements in one file, one after the other: all of them, or none if one does not fit."""
        where = self._workspace.path(path)
        if not edits:
            raise ToolError(f"{where}: the text to replace is empty; use write_file for a new file")
        with telling("edit", where):
            _check_file(where)
            if where.stat().st_size > MOST_EDITED:
                raise ToolError(f"{where} is larger than {MOST_EDITED >> 20} MiB; edit it with a command")
            text = where.read_bytes().decode("utf-8", "surrogateescape")
            count = 0
            for number, edit in enumerate(edits, start=1):
                text, changed = _edited(text, edit, where, f"edit {number}: " if len(edits) > 1 else "")
                count += changed
            _replace(where, text.encode("utf-8", "surrogateescape"))
        return f"{count} {'place' if count == 1 else 'places'} changed in {where}"


def _edited(text: str, edit: Edit, where: Path, which: str) -> tuple[str, int]:
    count = text.count(edit.old)
    if count == 0:
        raise ToolError(f"{where}: {which}the old text does not occur; read the file again. Nothing was changed")
    if count > 1 and not edit.replace_all:
        raise ToolError(
            f"{where}: {which}the old text occurs {count} times; give more of what is around it, or set replace_all. "
            "Nothing was changed"
        )
    return text.replace(edit.old, edit.new), count


def _check_file(where: Path) -> None:
    """A pipe or a device would keep us waiting for ever."""
    mode = where.stat().st_mode
    if stat.S_ISDIR(mode):
        raise ToolError(f"{where} is a directory; use list_directory")
    if not stat.S_ISREG(mode):
        raise ToolError(f"{where} is not a regular file")


def _image(where: Path) -> Image:
    size = where.stat().st_size
    if size > MOST_IMAGE:
        raise ToolError(f"{where}: the image has {size} bytes, more than the {MOST_IMAGE} that can be shown")
    return Image(data=where.read_bytes(), format=IMAGES[where.suffix.lower()])


def _lines(where: Path, offset: int, limit: int) -> str:
    with where.open("rb") as file:
        if b"\0" in file.read(8192):
            size = where.stat().st_size
            raise ToolError(
                f"{where} is not text ({size} bytes); look at it with a command such as file, xxd or strings"
            )
        file.seek(0)
        shown: list[str] = []
        size, number = 0, 0
        while raw := file.readline(MOST_LINE * 4):
            number += 1
            if number < offset:
                _to_line_end(file, raw)
                continue
            line = raw.decode("utf-8", "replace")
            rest = _to_line_end(file, raw)
            if len(line) > MOST_LINE or rest:
                line = f"{line[:MOST_LINE]} … the line goes on for {len(line) - MOST_LINE + rest} characters\n"
            shown.append(line)
            size += len(line)
            if len(shown) >= limit or size >= MOST_SHOWN:
                break
        more = bool(file.read(1))
    if number < offset and offset > 1:
        raise ToolError(f"{where} has only {number} lines")
    if more:
        shown.append(f"\n… there is more; go on with offset={number + 1}")
    return "".join(shown) or "(the file is empty)"


def _to_line_end(file: Any, raw: bytes) -> int:
    skipped = 0
    while raw and not raw.endswith(b"\n"):
        raw = file.readline(1 << 20)
        skipped += len(raw)
    return skipped


def _replace(where: Path, data: bytes) -> None:
    """Readers see the old file or the new one; its mode stays, and a link still leads to it."""
    real = where.resolve()
    if real.exists() and not real.is_file():
        raise ToolError(f"{where} is not a regular file")
    part = real.with_name(f".{real.name[:100]}.{secrets.token_hex(6)}")
    try:
        with part.open("xb") as file:
            file.write(data)
        if real.exists():
            part.chmod(stat.S_IMODE(real.stat().st_mode))
        part.replace(real)
    except PermissionError:
        part.unlink(missing_ok=True)
        if not os.access(real, os.W_OK):
            raise
        real.write_bytes(data)  # a file of ours in a directory that is not
    except OSError:
        part.unlink(missing_ok=True)
        raise
