"""Extraction of archives into a directory of the host, which no member leaves; Python brings that only from 3.11.4 on."""

from __future__ import annotations

import copy
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path


def extract(archive: tarfile.TarFile, into: Path, *, links_may_leave: bool = False) -> None:
    """Write the archive's files, directories and links below `into`, owned by whoever runs this.

    Raises `tarfile.TarError` or `OSError`. With `links_may_leave`, symbolic links are written wherever they point;
    nothing is ever written through one that points out.
    """
    if hasattr(tarfile, "fully_trusted_filter"):  # our own checks are the same everywhere, and newer Pythons ask
        archive.extraction_filter = tarfile.fully_trusted_filter
    # The members come one by one, each looked at when those before it, and their links, are on the disk.
    archive.extractall(into, members=_checked(archive, Path(os.path.realpath(into)), links_may_leave))


def _checked(archive: tarfile.TarFile, root: Path, links_may_leave: bool) -> Iterator[tarfile.TarInfo]:
    for member in archive:
        _refuse_outside(root, root, member.name, member.name)
        if member.islnk():
            _refuse_outside(root, root, member.linkname, member.name)
        elif member.issym():
            if not links_may_leave:
                _refuse_outside(root, root / Path(member.name).parent, member.linkname, member.name)
        elif not (member.isreg() or member.isdir()):
            raise tarfile.ExtractError(f"{member.name[:200]!r} is neither a file, a directory nor a link")
        yield _as_ours(member)


def _refuse_outside(root: Path, base: Path, name: str, member: str) -> None:
    if name.startswith("/") or not Path(os.path.realpath(base / name)).is_relative_to(root):
        raise tarfile.ExtractError(f"{member[:200]!r} leads out of the archive")


def _as_ours(member: tarfile.TarInfo) -> tarfile.TarInfo:
    ours = copy.copy(member)
    ours.uid, ours.gid, ours.uname, ours.gname = os.geteuid(), os.getegid(), "", ""
    ours.mode = stat.S_IMODE(member.mode) & 0o755 | (0o700 if member.isdir() else 0o600)
    return ours
