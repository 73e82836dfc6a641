"""The running instance of a data directory: who it is, proven by a lock, and where it listens, told by a small file."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import stat
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FLOCK = "hhqqi4x"  # struct flock on 64-bit Linux: type, whence, start, length, pid
LOGS = "logs"
PASSABLE = 0o711
_PRIVATE = (LOGS, "disks", "network", "server.json")  # made open by earlier versions
_held: dict[Path, int] = {}


class AlreadyRunning(Exception):
    """Another process serves this data directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a server tells about itself once it listens (`server.json`)."""

    pid: int
    url: str
    port: int
    domain: str | None
    started_at: str
    ca: str | None = None  # the local CA's certificate, when there is one
    https_port: int | None = None  # the second port, when there is one


def make_private(data_dir: Path) -> None:
    """Make the data directory, or mend an older one: other users pass through it (clients read the bundle of CAs), and neither
    list it nor read what it keeps. A directory that was never one of ours keeps its mode."""
    data_dir.mkdir(parents=True, exist_ok=True, mode=PASSABLE)
    is_ours = _lock_path(data_dir).exists() or not any(data_dir.iterdir())
    if is_ours and not data_dir.stat().st_mode & stat.S_ISVTX:
        data_dir.chmod(PASSABLE)
    (data_dir / LOGS).mkdir(exist_ok=True, mode=0o700)
    for path, mode in _too_open(data_dir):
        with contextlib.suppress(FileNotFoundError):
            path.chmod(mode)


def open_to_others(data_dir: Path) -> list[Path]:
    """What other users can list or read there, and should not."""
    is_open = data_dir.exists() and data_dir.stat().st_mode & ~PASSABLE & 0o777
    return [*([data_dir] if is_open else []), *(path for path, _ in _too_open(data_dir))]


def _too_open(data_dir: Path) -> list[tuple[Path, int]]:
    """What is in the data directory for root alone, and is not; with the mode that it should have."""
    found = []
    for path in (*(data_dir / name for name in _PRIVATE), *(data_dir / LOGS).glob("*")):
        with contextlib.suppress(FileNotFoundError):
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & 0o077:
                found.append((path, 0o700 if stat.S_ISDIR(mode) else 0o600))
    return found


def claim(data_dir: Path) -> None:
    """Make this process the one server of the data directory, until it ends. Raises `AlreadyRunning`.

    A POSIX record lock: the kernel names its holder and drops it with the process, so it can be neither stale nor
    mistaken for another process, whatever became of the pid.
    """
    path = _lock_path(data_dir)
    if path in _held:
        return
    make_private(data_dir)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise AlreadyRunning(f"another server (pid {holder(data_dir)}) uses {data_dir}") from error
    _held[path] = fd


def holder(data_dir: Path) -> int | None:
    """The pid of the server that holds the data directory, straight from the kernel; None if there is none."""
    path = _lock_path(data_dir)
    if path in _held:  # closing any descriptor of the file would drop our own lock
        return os.getpid()
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    finally:
        os.close(fd)
    return pid if kind != fcntl.F_UNLCK and pid > 1 else None


def announce(data_dir: Path, facts: Facts) -> None:
    """Write the server's facts, whole or not at all."""
    path = data_dir / "server.json"
    temporary = path.with_suffix(".tmp")
    temporary.touch(mode=0o600)
    temporary.write_text(
        json.dumps(
            {
                "pid": facts.pid,
                "url": facts.url,
                "port": facts.port,
                "domain": facts.domain,
                "started_at": facts.started_at,
                "ca": facts.ca,
                "https_port": facts.https_port,
            }
        )
    )
    temporary.rename(path)


def facts(data_dir: Path) -> Facts | None:
    """The facts of the server that runs now; None if none runs, or if it does not listen yet."""
    try:
        raw: Any = json.loads((data_dir / "server.json").read_text())
        told = Facts(
            pid=int(raw["pid"]),
            url=str(raw["url"]),
            port=int(raw["port"]),
            domain=raw.get("domain"),
            started_at=str(raw.get("started_at", "")),
            ca=raw.get("ca"),
            https_port=raw.get("https_port"),
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return told if told.pid == holder(data_dir) else None


def stop(data_dir: Path, timeout_s: float = 30) -> bool:
    """End the server of the data directory and wait until it is gone. False if none ran."""
    pid = holder(data_dir)
    if pid is None:
        return False
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if holder(data_dir) != pid:  # it ended, and the pid may be somebody else's by now
            return True
        for number, patience_s in ((signal.SIGTERM, timeout_s), (signal.SIGKILL, 10.0)):
            signal.pidfd_send_signal(pidfd, number)
            if _ended(data_dir, pid, patience_s):
                return True
        return False
    except ProcessLookupError:
        return True
    finally:
        os.close(pidfd)


def _ended(data_dir: Path, pid: int, patience_s: float) -> bool:
    """The lock is the thing to watch: a zombie that nobody reaps holds it no more."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if holder(data_dir) != pid:
            return True
        time.sleep(0.02)
    return False


def _lock_path(data_dir: Path) -> Path:
    return data_dir / "server.lock"
