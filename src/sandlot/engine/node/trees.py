"""Trees of files that a guest made: reached by descriptors, never by a path whose parts the guest chose.

A guest puts links where the host expects directories, and directories in directories until recursion ends. So nothing here
follows a link, nothing leaves the tree, and nothing recurses.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

SYS_OPENAT2 = 437
RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH, RESOLVE_IN_ROOT = 0x02, 0x04, 0x08, 0x10
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def exists(tree: Path, name: str) -> bool:
    """Whether a machine with this root would find something there. Links count as found, and lead nowhere outside."""
    try:
        with _opened(tree) as top:
            os.close(_openat2(top, name, os.O_PATH | os.O_NOFOLLOW, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS))
    except OSError:
        return False
    return True


def is_empty(tree: Path, *, but_for: str) -> bool:
    """Whether there is nothing in a tree, or nothing but one directory that is empty."""
    with _opened(tree) as top:
        if any(name != but_for for name, _ in _entries(top)):
            return False
        try:
            inner = _openat2(top, but_for, _DIRECTORY, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)
        except FileNotFoundError:
            return True
        except OSError:  # a link, or a file
            return False
        try:
            return not _entries(inner)
        finally:
            os.close(inner)


def remove_below(tree: Path, name: str) -> None:
    """Remove what has this name in a tree. Nothing there, or a link on the way, is fine: then it is not in the tree."""
    parent, _, last = name.strip("/").rpartition("/")
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), _opened(tree) as top:
        try:
            directory = _openat2(top, parent or ".", _DIRECTORY, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EXDEV):
                return
            raise
        try:
            _remove(directory, last)
        finally:
            os.close(directory)


def remove(tree: Path) -> None:
    """Remove a whole tree, however deep. Nothing there is fine."""
    with contextlib.suppress(FileNotFoundError), _opened(tree.parent) as directory:
        _remove(directory, tree.name)


def _remove(parent: int, name: str) -> None:
    try:
        top = os.open(name, _DIRECTORY, dir_fd=parent)
    except NotADirectoryError:  # also a link
        os.unlink(name, dir_fd=parent)
        return
    try:
        _empty(top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _empty(top: int) -> None:
    """Directories are moved up beside their parents before they are emptied: no depth costs descriptors or stack."""
    prefix, made = f".gone-{secrets.token_hex(8)}-", 0
    waiting = ["."]
    while waiting:
        name = waiting.pop()
        directory = os.open(name, _DIRECTORY, dir_fd=top)
        try:
            for entry, is_directory in _entries(directory):
                if not is_directory:
                    os.unlink(entry, dir_fd=directory)
                elif name == ".":
                    waiting.append(entry)
                else:
                    os.rename(entry, f"{prefix}{made}", src_dir_fd=directory, dst_dir_fd=top)
                    waiting.append(f"{prefix}{made}")
                    made += 1
        finally:
            os.close(directory)
        if name != ".":
            os.rmdir(name, dir_fd=top)


def _entries(directory: int) -> list[tuple[str, bool]]:
    with os.scandir(directory) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]


@contextlib.contextmanager
def _opened(tree: Path) -> Iterator[int]:
    """The tree itself has a name that the host chose."""
    fd = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


def _openat2(directory: int, name: str, flags: int, resolve: int) -> int:
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    fd: int = _libc.syscall(SYS_OPENAT2, directory, os.fsencode(name), ctypes.byref(how), ctypes.sizeof(how))
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
    return fd
