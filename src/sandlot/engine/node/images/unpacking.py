"""Unpacks the layers of an image over each other into a directory, taking away what upper layers say is gone.

A program of its own, like `layer_editor`: the directory is its root before it reads the first name, so that links in one layer
cannot lead the next one out of it.
"""

from __future__ import annotations

import bz2  # noqa: F401 - nothing can be imported after the change of root
import contextlib
import errno
import json
import lzma
import os
import shutil
import stat
import sys
import tarfile
import zlib
from typing import Any

from sandlot.engine.node.images import layer_editor

# The same as for editing, and CAP_SETFCAP: programs of images may have file capabilities.
KEPT_CAPABILITIES = layer_editor.KEPT_CAPABILITIES | 1 << 31
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
XATTR = "SCHILY.xattr."
MOST_ENTRIES = 3_000_000
LONGEST_NAME = 4096


class Damaged(Exception):
    """The image cannot be unpacked; the text is for whoever named it."""


def unpack_layer(file: Any, room: list[int]) -> None:
    own: set[str] = set()  # what this layer brought: an opaque directory hides only what was there before
    with tarfile.open(fileobj=file, mode="r:*") as archive:
        for entry in archive:
            archive.members.clear()  # type: ignore[attr-defined] # it would keep them all
            room[0] -= entry.size  # also of what is passed over: it has to be read
            room[1] -= 1
            if min(room) < 0:
                raise Damaged("it is larger than this server takes, or has too many files")
            if len(entry.name) > LONGEST_NAME:
                raise Damaged(f"a layer has a name that is too long: {entry.name[:200]!r}")
            parts = [part for part in entry.name.split("/") if part not in ("", ".")]
            if ".." in parts:
                raise Damaged(f"a layer has a name that leads out of it: {entry.name[:200]!r}")
            if parts:
                unpack_entry(archive, entry, parts, own)


def unpack_entry(archive: tarfile.TarFile, entry: tarfile.TarInfo, parts: list[str], own: set[str]) -> None:
    parent, name = "/" + "/".join(parts[:-1]), parts[-1]
    os.makedirs(parent, exist_ok=True)
    if name == OPAQUE:
        for each in os.listdir(parent):
            if os.path.join(parent, each) not in own:
                remove(os.path.join(parent, each))
        return
    if name.startswith(WHITEOUT):
        remove(os.path.join(parent, name[len(WHITEOUT) :]))
        return
    path = os.path.join(parent, name)
    own.update("/" + "/".join(parts[: count + 1]) for count in range(len(parts)))
    if entry.isdir():
        if os.path.islink(path) or not os.path.isdir(path):
            remove(path)
            os.mkdir(path)
    elif entry.isreg():
        remove(path)
        source = archive.extractfile(entry)
        assert source is not None
        with open(path, "xb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
    elif entry.issym():
        remove(path)
        os.symlink(entry.linkname, path)
    elif entry.islnk():
        remove(path)
        os.link("/" + entry.linkname.lstrip("/"), path, follow_symlinks=False)
        return
    elif entry.isfifo():
        remove(path)
        os.mkfifo(path)
    else:
        return  # device nodes: sandboxes have a /dev of their own
    set_facts(path, entry)


def set_facts(path: str, entry: tarfile.TarInfo) -> None:
    os.chown(path, entry.uid, entry.gid, follow_symlinks=False)
    if not entry.issym():
        os.chmod(path, entry.mode & 0o7777)
        for name, value in entry.pax_headers.items():
            if name.startswith((XATTR + "user.", XATTR + "security.capability")):
                with contextlib.suppress(OSError):
                    os.setxattr(path, name[len(XATTR) :], value.encode("utf-8", "surrogateescape"))
    with contextlib.suppress(OSError, OverflowError):
        os.utime(path, (entry.mtime, entry.mtime), follow_symlinks=False)


def remove(path: str) -> None:
    try:
        facts = os.lstat(path)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(facts.st_mode):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def main() -> None:
    job = json.load(sys.stdin)
    answer: dict[str, Any] = {}
    try:
        layer_editor.confine(os.fsencode(job["root"]), KEPT_CAPABILITIES)
        room = [job["limit"], MOST_ENTRIES]
        for fd in job["fds"]:
            with open(fd, "rb") as file:
                unpack_layer(file, room)
    except Damaged as error:
        answer = {"refused": str(error)}
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        answer = {
            "refused": "the disk of this server is full"
            if full
            else f"a layer cannot be unpacked: {error.strerror or error}"
        }
    except MemoryError:
        answer = {"refused": "a layer takes more memory than unpacking it may"}
    except (tarfile.TarError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        answer = {"refused": f"a layer cannot be read: {error}"}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
