"""Describes files and directories, creates missing directories for a user, and keeps metadata in extended attributes."""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from envd.messages import Message
    from envd.users import User, Users

FILE, DIRECTORY, SYMLINK = 1, 2, 3
PREFIX = "user.e2b."
MAX_KEY = 255 - len(PREFIX)
MAX_METADATA = 4096

# The letters that Go puts before the permission bits, in its order.
_LETTERS = (
    (stat.S_ISDIR, "d"),
    (stat.S_ISLNK, "L"),
    (lambda mode: stat.S_ISBLK(mode) or stat.S_ISCHR(mode), "D"),
    (stat.S_ISFIFO, "p"),
    (stat.S_ISSOCK, "S"),
    (lambda mode: mode & stat.S_ISUID, "u"),
    (lambda mode: mode & stat.S_ISGID, "g"),
    (stat.S_ISCHR, "c"),
    (lambda mode: mode & stat.S_ISVTX, "t"),
)


class NotADirectory(Exception):
    """A part of a path that should be a directory is something else."""


def describe(path: str, users: Users) -> Message:
    """The entry at `path`; a symlink is described by what it points to. Raises OSError."""
    status = os.lstat(path)
    entry: Message = {
        "name": os.path.basename(path.rstrip("/")) or "/",
        "path": path,
        "size": status.st_size,
        "permissions": permissions(status.st_mode),
        "owner": users.user_name(status.st_uid),
        "group": users.group_name(status.st_gid),
        "modifiedTime": divmod(status.st_mtime_ns, 1_000_000_000),
    }
    mode = status.st_mode
    if stat.S_ISLNK(mode):
        mode = _describe_target(path, entry)
    entry["type"] = FILE if stat.S_ISREG(mode) else DIRECTORY if stat.S_ISDIR(mode) else 0
    entry["mode"] = mode & 0o777
    if entry["type"]:
        entry["metadata"] = read_metadata(path)
    return entry


def _describe_target(path: str, entry: Message) -> int:
    try:
        target = os.path.realpath(path, strict=True)
        entry["symlinkTarget"] = target
        return os.stat(target).st_mode
    except OSError:
        entry["symlinkTarget"] = path
        return 0


def permissions(mode: int) -> str:
    letters = "".join(letter for test, letter in _LETTERS if test(mode)) or "-"
    bits = "".join(c if mode & (0o400 >> i) else "-" for i, c in enumerate("rwxrwxrwx"))
    return letters + bits


def ensure_directories(path: str, user: User) -> None:
    """Create what is missing of `path`, owned by the user. Raises OSError or `NotADirectory`."""
    missing: list[str] = []
    path = os.path.normpath(path)
    while True:
        try:
            if not stat.S_ISDIR(os.stat(path).st_mode):
                raise NotADirectory(f"path is a file: {path}")
            break
        except FileNotFoundError:
            missing.append(path)
        except NotADirectoryError:
            pass  # a parent is the culprit, and is looked at next
        path = os.path.dirname(path)
    for path in reversed(missing):
        try:
            os.mkdir(path, 0o755)
        except FileExistsError:
            if not os.path.isdir(path):  # a dangling symlink
                raise
        os.chown(path, user.uid, user.gid)


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Raises ValueError if the set cannot be stored on a file."""
    total = 0
    for key, value in metadata.items():
        if len(key) > MAX_KEY:
            raise ValueError(f"metadata key {key[:40]!r}… exceeds {MAX_KEY} bytes")
        for what, text in (("key", key), (f"value for key {key!r}", value)):
            if not all(" " <= character <= "~" for character in text):
                raise ValueError(f"metadata {what} contains a character that is not printable ASCII")
        total += len(PREFIX) + len(key) + len(value)
    if total > MAX_METADATA:
        raise ValueError(f"total metadata size {total} exceeds {MAX_METADATA} bytes")


def read_metadata(path: str) -> dict[str, str]:
    """Metadata is an extra: what cannot be read, or is no text, is left out."""
    found: dict[str, str] = {}
    try:
        for name in os.listxattr(path):
            if name.startswith(PREFIX):
                try:
                    found[name[len(PREFIX) :]] = os.getxattr(path, name).decode()
                except UnicodeDecodeError:
                    continue
    except OSError:
        pass
    return found


def write_metadata(descriptor: int, metadata: Mapping[str, str]) -> None:
    """Replace the whole set; a filesystem without extended attributes keeps none. Raises OSError when it is full."""
    try:
        for name in os.listxattr(descriptor):
            if name.startswith(PREFIX) and name[len(PREFIX) :] not in metadata:
                os.removexattr(descriptor, name)
        for key, value in metadata.items():
            os.setxattr(descriptor, PREFIX + key, value.encode())
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.ENODATA, errno.EPERM):
            raise
