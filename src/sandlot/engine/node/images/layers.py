"""Template layers on disk: finds them by name and publishes new ones whole or not at all, once per machine."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import os
import re
import secrets
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from sandlot.engine.core.errors import NotFound
from sandlot.engine.node import processes, trees
from sandlot.program import SANDLOT

FEW = 50
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,127}")
_UNFINISHED = re.compile(r"[a-z0-9][a-z0-9_-]*\.tmp-|\.(?:gone|editing|placing|joining)-")


class Layers:
    """A directory of read-only root filesystems, shared by every instance of the machine.

    A layer appears by rename, so it is complete or absent, and nobody writes to it afterwards. The directory is closed
    to everybody but root: the set-uid programs of an image must not be within reach of the host's users.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, name: str) -> Path:
        """Where a layer is. Raises `NotFound` if there is none of that name."""
        path = self._path(name)
        if not path.is_dir():
            raise NotFound(f"the template layer {name!r} is not on this machine; `{SANDLOT} up` builds what is missing")
        return path

    def has(self, name: str) -> bool:
        return self._path(name).is_dir()

    def names(self) -> list[str]:
        if not self._directory.is_dir():
            return []
        return sorted(
            entry.name for entry in self._directory.iterdir() if entry.is_dir() and _NAME.fullmatch(entry.name)
        )

    @property
    def directory(self) -> Path:
        return self._directory

    async def remove(self, name: str) -> None:
        """Delete a layer that nobody uses any more. Idempotent; its name is gone at once."""
        doomed = self._directory / f".gone-{secrets.token_hex(4)}"
        try:
            self._path(name).rename(doomed)
        except FileNotFoundError:
            return
        await asyncio.to_thread(_remove, doomed)

    async def publish(
        self,
        name: str,
        build: Callable[[Path], Awaitable[None]],
        *,
        waiting: Callable[[], None] = lambda: None,
    ) -> Path:
        """Have `build` fill an empty directory and give it its name; if the layer is there already, that is the answer.

        Another process that builds the same layer is waited for (`waiting` is called once). On failure nothing is left.
        """
        target = self._path(name)
        if target.is_dir():
            return target
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._directory.chmod(0o700)
        async with self._locked(name, waiting):
            if not target.is_dir():
                self._remove_leftovers(name)
                await self._build(target, build)
        return target

    async def _build(self, target: Path, build: Callable[[Path], Awaitable[None]]) -> None:
        temporary = target.with_name(f"{target.name}.tmp-{secrets.token_hex(4)}")
        temporary.mkdir(mode=0o755)
        try:
            await build(temporary)
            temporary.chmod(0o755)
            # After a power cut, a name must never stand for files whose content was not written yet.
            await _on_disk(temporary)
            temporary.rename(target)
        except BaseException:
            await processes.to_the_end(asyncio.to_thread(_remove, temporary))
            raise

    @contextlib.asynccontextmanager
    async def _locked(self, name: str, waiting: Callable[[], None]) -> AsyncIterator[None]:
        fd = os.open(self._directory / f".{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            said = False
            while not _try_lock(fd):
                if not said:
                    waiting()
                    said = True
                await asyncio.sleep(0.2)
            yield
        finally:
            os.close(fd)

    def _remove_leftovers(self, name: str) -> None:
        """With the lock held, a temporary directory of this name belongs to a build that was killed."""
        for leftover in self._directory.glob(f"{name}.tmp-*"):
            _remove(leftover)

    def sweep(self, older_than_s: float) -> int:
        """Remove what a process that was killed left unfinished; how many. What others work on is locked, or younger."""
        if not self._directory.is_dir():
            return 0
        before, gone = time.time() - older_than_s, 0
        for path in (*self._directory.iterdir(), *self._directory.glob(".pulls/*")):
            if _UNFINISHED.match(path.name) is None and path.parent == self._directory:
                continue
            if path.lstat().st_ctime < before and self._remove_unlocked(path):
                gone += 1
        return gone

    def _remove_unlocked(self, path: Path) -> bool:
        name = path.name.partition(".tmp-")[0]
        lock = self._directory / f".{name}.lock"
        if not _NAME.fullmatch(name) or not lock.exists():
            _remove(path)
            return True
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
        try:
            if not _try_lock(fd):
                return False
            _remove(path)
            return True
        finally:
            os.close(fd)

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise NotFound(f"{name!r} cannot be the name of a template layer")
        return self._directory / name


async def _on_disk(directory: Path) -> None:
    """Wait until what is below is on the disk. For a few files that is no reason to wait for everybody else's, too."""
    paths = list(itertools.islice(directory.rglob("*"), FEW + 1))
    if len(paths) > FEW:
        await processes.run("sync", "--file-system", str(directory), timeout_s=600)
        return
    synced = [path for path in (*paths, directory) if stat.S_IFMT(path.lstat().st_mode) in (stat.S_IFREG, stat.S_IFDIR)]
    await processes.run("sync", *map(str, synced), timeout_s=600)


def _remove(tree: Path) -> None:
    """What cannot be removed now is swept later."""
    with contextlib.suppress(OSError):
        trees.remove(tree)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
