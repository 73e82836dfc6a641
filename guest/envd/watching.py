"""Watches directories with inotify, and says what happened in the words of E2B's filesystem events."""

from __future__ import annotations

import asyncio
import errno
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable

    from envd.messages import Message

MAX_EVENTS = 50_000  # kept for a client that does not fetch them
MAX_DIRECTORIES = 20_000

_MODIFY, _ATTRIB = 0x2, 0x4
_MOVED_FROM, _MOVED_TO = 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x100, 0x200, 0x400, 0x800
_OVERFLOW, _IGNORED, _IS_DIRECTORY = 0x4000, 0x8000, 0x40000000
_ONLY_DIRECTORY = 0x01000000
_MASK = _MODIFY | _ATTRIB | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF

CREATE, WRITE, REMOVE, RENAME, CHMOD = 1, 2, 3, 4, 5
# In the order in which one inotify event becomes several of ours.
_TYPES = (
    (_CREATE | _MOVED_TO, CREATE),
    (_MOVED_FROM | _MOVE_SELF, RENAME),
    (_ATTRIB, CHMOD),
    (_MODIFY, WRITE),
    (_DELETE | _DELETE_SELF, REMOVE),
)
_NETWORK_MOUNTS = frozenset({0x6969, 0xFF534D42, 0x517B, 0xFE534D42, 0x65735546})

_libc: ctypes.CDLL | None = None


class TooManyEvents(Exception):
    pass


class WatchFailed(Exception):
    pass


def libc() -> ctypes.CDLL:
    global _libc
    if _libc is None:
        import ctypes  # only watches need it, and loading it takes time

        _libc = ctypes.CDLL(None, use_errno=True)
    return _libc


def _checked(result: int, path: str) -> int:
    if result < 0:
        import ctypes

        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return result


class Watch:
    """One watched directory, with everything below it if recursive. Raises OSError when it cannot be set up."""

    def __init__(self, root: str, recursive: bool, describe: Callable[[str], Message | None] | None) -> None:
        self._root = root
        self._recursive = recursive
        self._describe = describe
        self._loop = asyncio.get_running_loop()
        self._directories: dict[int, str] = {}
        self._events: list[Message] = []
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._inotify = _checked(libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), root)
        try:
            self._root_watch = self._add(root)
            if recursive:
                self._add_below(root)
        except BaseException:
            os.close(self._inotify)
            raise
        self._loop.add_reader(self._inotify, self._readable)

    def is_on_network_mount(self) -> bool:
        """Whether changes made elsewhere would go unnoticed."""
        import ctypes

        buffer = ctypes.create_string_buffer(256)
        if libc().statfs(os.fsencode(self._root), buffer) != 0:
            return False
        return struct.unpack_from("@l", buffer.raw)[0] & 0xFFFFFFFF in _NETWORK_MOUNTS

    def drain(self) -> list[Message]:
        """Events since the last call. Raises `TooManyEvents` or `WatchFailed` once events were lost."""
        events, self._events = self._events, []
        if not events and self._error is not None:
            raise self._error
        return events

    async def wait(self, patience: float) -> list[Message]:
        """Events as soon as there are any; none after `patience` seconds."""
        if not self._events and self._error is None:
            self._waiter = self._loop.create_future()
            timer = self._loop.call_later(patience, self._wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        return self.drain()

    def close(self) -> None:
        if self._inotify >= 0:
            self._loop.remove_reader(self._inotify)
            os.close(self._inotify)
            self._inotify = -1

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _add(self, path: str) -> int:
        mask = _MASK | _ONLY_DIRECTORY
        number = _checked(libc().inotify_add_watch(self._inotify, os.fsencode(path), mask), path)
        self._directories[number] = path
        return number

    def _add_below(self, path: str, *, announce: bool = False) -> None:
        """Watch all directories below; `announce` what was there before the watch was, which nobody would hear of."""
        try:
            with os.scandir(path) as scan:
                children = [(child.path, child.is_dir(follow_symlinks=False)) for child in scan]
        except OSError:
            return
        for child, is_directory in children:
            if announce:
                self._tell(CREATE, child)
            if not is_directory:
                continue
            if len(self._directories) >= MAX_DIRECTORIES:
                raise OSError(errno.ENOSPC, f"more than {MAX_DIRECTORIES} directories to watch", self._root)
            try:
                self._add(child)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES):
                    continue
                raise
            self._add_below(child, announce=announce)

    def _readable(self) -> None:
        try:
            data = os.read(self._inotify, 64 * 1024)
        except BlockingIOError:
            return
        at = 0
        try:
            while at < len(data):
                number, mask, _cookie, length = struct.unpack_from("iIII", data, at)
                name = data[at + 16 : at + 16 + length].rstrip(b"\0")
                at += 16 + length
                self._handle(number, mask, os.fsdecode(name))
        except OSError as error:
            self._fail(WatchFailed(str(error)))
        if self._events or self._error:
            self._wake()

    def _handle(self, number: int, mask: int, name: str) -> None:
        if mask & _OVERFLOW:
            self._fail(TooManyEvents("changes came faster than they could be read, and some were lost"))
            return
        if mask & _IGNORED:
            self._directories.pop(number, None)
            return
        directory = self._directories.get(number)
        if directory is None or (not name and number != self._root_watch):
            return  # a directory below says of itself what its parent has already said
        path = os.path.join(directory, name) if name else directory
        for bits, kind in _TYPES:
            if mask & bits:
                self._tell(kind, path)
        if self._recursive and mask & _IS_DIRECTORY and name:
            self._follow(mask, path)

    def _follow(self, mask: int, path: str) -> None:
        """Keep the set of watched directories in step with directories that come and go."""
        if mask & _MOVED_FROM:
            below = path + "/"
            for number, watched in tuple(self._directories.items()):
                if watched == path or watched.startswith(below):
                    libc().inotify_rm_watch(self._inotify, number)
                    self._directories.pop(number, None)
        elif mask & (_CREATE | _MOVED_TO):
            try:
                self._add(path)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR):
                    return
                raise
            self._add_below(path, announce=bool(mask & _CREATE))

    def _tell(self, kind: int, path: str) -> None:
        if len(self._events) >= MAX_EVENTS:
            self._fail(TooManyEvents(f"more than {MAX_EVENTS} changes were not fetched"))
            return
        event: Message = {"name": os.path.relpath(path, self._root), "type": kind}
        if self._describe is not None and kind in (CREATE, WRITE, CHMOD):
            event["entry"] = self._describe(path)
        self._events.append(event)

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._loop.remove_reader(self._inotify)
        self._wake()
