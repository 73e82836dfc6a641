"""Archives on the host: extraction into a directory that no member leaves (Python brings that only from 3.11.4 on), and digests."""

from __future__ import annotations

import copy
import gzip
import hashlib
import io
import json
import os
import stat
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO


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


def content_digest(path: Path, *, most_bytes: int) -> str | None:
    """The digest of what an archive holds: names, kinds, modes, contents in their order; not of times and owners.

    None: it is larger than this, or not an archive as SDKs make them (tar, with gzip or without).
    """
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            unpacked = _read_bounded(gzip.GzipFile(fileobj=file) if packed else file, most_bytes)
        if unpacked is None:
            return None
        with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r:") as archive:
            return _digest_of_members(archive, most_bytes)
    except (tarfile.TarError, EOFError, OSError, zlib.error, ValueError):
        return None


def _read_bounded(file: IO[bytes] | gzip.GzipFile, most_bytes: int) -> bytes | None:
    content = file.read(most_bytes + 1)
    return content if len(content) <= most_bytes else None


def _digest_of_members(archive: tarfile.TarFile, most_bytes: int) -> str | None:
    digest = hashlib.sha256()
    for member in archive:
        most_bytes -= member.size  # which a sparse file may claim without having it
        if most_bytes < 0:
            return None
        file = archive.extractfile(member) if member.isreg() else None
        content = hashlib.sha256(file.read() if file else b"").hexdigest()
        about = [member.name, member.type.hex(), member.mode, member.size, member.linkname, content]
        digest.update(json.dumps(about).encode() + b"\n")
    return digest.hexdigest()
