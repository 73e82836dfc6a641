"""Checkpoints on this host's disk: written whole or not at all, checked before use, counted against a limit."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

from sandlot.engine.core.codec import decode, encode
from sandlot.engine.core.errors import NoCapacity, StateUnusable
from sandlot.engine.core.model import Checkpoint
from sandlot.engine.node import processes

FACTS = "checkpoint.json"
STATE = "state"
GB = 1 << 30


class CheckpointStore:
    """A directory of states by name. A name appears by rename, when all of it is on the disk."""

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self._directory, self._limit = directory, limit_bytes
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for draft in directory.glob(".*"):  # of a process that was killed while it wrote
            shutil.rmtree(draft, ignore_errors=True)

    async def write(
        self,
        facts: Checkpoint,
        fill: Callable[[Path], Awaitable[None]],
        *,
        expected_bytes: int = 0,
        lasting: bool = True,
    ) -> Checkpoint:
        """Have `fill` write the state into a new directory, and keep it under its name, in place of an earlier one.

        Raises `NoCapacity` when there is no room for it, before anything is written. `lasting`: it is on the disk, whatever
        happens to the host, when this returns.
        """
        await asyncio.to_thread(self._check_room, expected_bytes)
        draft = self._directory / f".{facts.name}-{secrets.token_hex(4)}"
        draft.mkdir(mode=0o700)
        try:
            await fill(draft / STATE)
            sizes = await asyncio.to_thread(_sizes, draft / STATE)
            kept = replace(facts, size_bytes=await asyncio.to_thread(_disk_use, draft))
            (draft / FACTS).write_text(json.dumps({**encode(kept), "files": dict(sizes)}))
            if lasting:
                await asyncio.to_thread(_sync, draft)
            await self.remove(facts.name)
            draft.rename(self._directory / facts.name)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        if lasting:
            await processes.to_the_end(asyncio.to_thread(_sync_path, self._directory))
        return kept

    def _check_room(self, expected_bytes: int) -> None:
        used = self.used_bytes()
        if used + expected_bytes >= self._limit:
            raise NoCapacity(
                f"states of paused sandboxes and snapshots use {used / GB:.1f} GiB of the {self._limit / GB:.1f} GiB they may, and "
                f"this one needs about {expected_bytes / GB:.1f} GiB: kill paused sandboxes, delete snapshots, or raise "
                "SANDLOT_CHECKPOINT_DISK_GB"
            )

    def get(self, name: str) -> Checkpoint | None:
        found = self._read(name)
        return found[0] if found else None

    def open(self, name: str) -> tuple[Checkpoint, Path]:
        """The facts and the directory of a state that is whole. Raises `Unavailable`."""
        found = self._read(name)
        if found is None:
            raise StateUnusable(
                f"the saved state of {name} is missing or unreadable on this host; it cannot be started again"
            )
        state = self._directory / name / STATE
        facts, files = found
        if _sizes(state) != files:
            raise StateUnusable(
                f"the saved state of {name} is damaged: files are missing or cut short; it cannot be started again"
            )
        return facts, state

    def all(self) -> Mapping[str, Checkpoint]:
        names = (path.name for path in self._directory.iterdir() if not path.name.startswith("."))
        return {name: found for name in names if (found := self.get(name)) is not None}

    def names(self) -> set[str]:
        return {path.name for path in self._directory.iterdir() if not path.name.startswith(".")}

    def touch(self, name: str) -> None:
        """It is of use now."""
        with contextlib.suppress(OSError):
            os.utime(self._directory / name)

    def used_at(self, name: str) -> float:
        """When it was last of use, or written."""
        try:
            return (self._directory / name).stat().st_mtime
        except OSError:
            return 0

    def used_bytes(self) -> int:
        return sum(found.size_bytes for found in self.all().values())

    async def remove(self, name: str) -> None:
        """Idempotent; the name is gone at once."""
        doomed = self._directory / f".{name}-{secrets.token_hex(4)}"
        try:
            (self._directory / name).rename(doomed)
        except FileNotFoundError:
            return
        await processes.to_the_end(asyncio.to_thread(shutil.rmtree, doomed, ignore_errors=True))

    def _read(self, name: str) -> tuple[Checkpoint, Mapping[str, int]] | None:
        """The facts and the sizes of the files. What another version of this program left out or added is no obstacle."""
        try:
            found = json.loads((self._directory / name / FACTS).read_text())
            return decode(Checkpoint, found), found["files"]
        except (OSError, ValueError, TypeError, KeyError):
            return None


def _sizes(directory: Path) -> dict[str, int]:
    return {
        str(path.relative_to(directory)): path.stat().st_size
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def _disk_use(directory: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in directory.rglob("*"))


def _sync(top: Path) -> None:
    """Have everything below on the disk: what others write to the same file system is not waited for."""
    for path in (*top.rglob("*"), top):
        if not path.is_symlink():
            _sync_path(path)


def _sync_path(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
