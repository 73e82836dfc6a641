"""Knows the image's users, by reading its passwd and group files: the C library's own lookup belongs to another image."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


class UnknownUser(LookupError):
    pass


class User:
    """One account, with every group it belongs to."""

    __slots__ = ("gid", "groups", "home", "name", "uid")

    def __init__(self, name: str, uid: int, gid: int, home: str, groups: tuple[int, ...]) -> None:
        self.name = name
        self.uid = uid
        self.gid = gid
        self.home = home
        self.groups = groups


class Users:
    """The accounts in `etc`, read again whenever one of the two files has changed."""

    def __init__(self, etc: str = "/etc") -> None:
        self._etc = etc
        self._stamp: object = None
        self._users: dict[str, User] = {}
        self._user_names: dict[int, str] = {}
        self._group_names: dict[int, str] = {}

    def find(self, name: str) -> User:
        self._refresh()
        user = self._users.get(name)
        if user is None and name == "root":
            return User("root", 0, 0, "/root", (0,))  # an image without a passwd file has root all the same
        if user is None:
            raise UnknownUser(name)
        return user

    def user_name(self, uid: int) -> str:
        self._refresh()
        return self._user_names.get(uid, str(uid))

    def group_name(self, gid: int) -> str:
        self._refresh()
        return self._group_names.get(gid, str(gid))

    def _refresh(self) -> None:
        stamp = tuple(_stamp(f"{self._etc}/{name}") for name in ("passwd", "group"))
        if stamp == self._stamp:
            return
        self._stamp = stamp
        members, self._group_names = self._read_groups()
        self._users, self._user_names = {}, {}
        for fields in _records(f"{self._etc}/passwd", 6):
            name, uid, gid = fields[0], int(fields[2]), int(fields[3])
            groups = (gid, *(other for other in members.get(name, ()) if other != gid))
            self._users.setdefault(name, User(name, uid, gid, fields[5] or "/", groups))
            self._user_names.setdefault(uid, name)

    def _read_groups(self) -> tuple[dict[str, list[int]], dict[int, str]]:
        members: dict[str, list[int]] = {}
        names: dict[int, str] = {}
        for fields in _records(f"{self._etc}/group", 3):
            gid = int(fields[2])
            names.setdefault(gid, fields[0])
            for member in fields[3].split(",") if len(fields) > 3 else ():
                members.setdefault(member.strip(), []).append(gid)
        return members, names


def _stamp(path: str) -> object:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _records(path: str, least: int) -> Iterator[list[str]]:
    """Lines with at least `least` fields whose third and (for users) fourth are ids; broken lines are skipped."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read(4 * 1024 * 1024).splitlines()
    except OSError:
        return
    for line in lines:
        fields = line.strip().split(":")
        ids = fields[2:4] if least > 3 else fields[2:3]
        if len(fields) >= least and fields[0] and all(part.isascii() and part.isdigit() for part in ids):
            yield fields
