"""Host processes: the one place where the engine starts a program, waits for it, and reaps what runtimes leave behind."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import subprocess
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from sandlot import children
from sandlot.engine.core.errors import EngineError, Unavailable
from sandlot.program import SANDLOT

CLONE_NEWNS = 0x00020000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_SLAVE, MS_SHARED = 0x2, 0x4, 0x8, 0x1000, 0x4000, 1 << 19, 1 << 20
MNT_DETACH = 2
PR_SET_CHILD_SUBREAPER = 36
OUTPUT_LIMIT = 1 << 20

T = TypeVar("T")
log = logging.getLogger(__name__)
_libc = ctypes.CDLL(None, use_errno=True)
_own = children.OWN  # children that somebody waits for; the reaper leaves them alone
_reaping = False
_host_mounts: int | None = None  # the mount namespace the server was started in


class CommandFailed(EngineError):
    """A host program ended with an error or ran out of time. Adapters translate it; it never reaches a caller."""

    def __init__(self, argv: Sequence[str], status: int, output: str) -> None:
        self.argv, self.status, self.output = tuple(argv), status, output
        super().__init__(
            f"{Path(argv[0]).name} {' '.join(argv[1:4])} … failed with status {status}: {output.strip()[-2000:]}"
        )


@dataclass(frozen=True, slots=True)
class Completed:
    status: int  # exit code, or minus the signal
    stdout: bytes
    stderr: bytes


async def run(
    *argv: str,
    input: bytes | None = None,
    timeout_s: float = 60,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    check: bool = True,
    in_host_mounts: bool = False,
    stdio: IO[bytes] | int | None = None,
    pass_fds: Sequence[int] = (),
    stdin: IO[bytes] | None = None,
    stdout: IO[bytes] | None = None,
) -> Completed:
    """Run a program to its end and return what it wrote.

    Output goes to memory files, not pipes: a daemon that the program leaves behind cannot hold us up. A program whose
    children outlive it and are not trusted (a container runtime) gets `stdio` (for example DEVNULL) instead. `stdin` and
    `stdout` are files that it reads from and writes to.
    Raises `CommandFailed` on a non-zero status (unless `check` is false) or when the time is up.
    """
    argv = (*_entering_host_mounts(), *argv) if in_host_mounts else argv
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(os.fdopen(os.memfd_create("stdout"), "w+b"))
        err = stack.enter_context(os.fdopen(os.memfd_create("stderr"), "w+b"))
        given: IO[bytes] | int = subprocess.DEVNULL if stdin is None else stdin
        if input is not None:
            given = stack.enter_context(os.fdopen(os.memfd_create("stdin"), "w+b"))
            given.write(input)
            given.seek(0)
        child = _spawn(
            argv,
            stdin=given,
            stdout=stdout or (out if stdio is None else stdio),
            stderr=err if stdio is None else stdio,
            env=dict(env) if env is not None else None,
            cwd=cwd,
            pass_fds=pass_fds,
            start_new_session=True,
        )
        try:
            status = await _ended(child, timeout_s)
        finally:
            _own.discard(child.pid)
            if _reaping:
                reap_orphans()
        result = Completed(status, _read(out), _read(err))
    if check and status != 0:
        raise CommandFailed(argv, status, (result.stderr or result.stdout).decode(errors="replace"))
    return result


def _spawn(argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a child that the reaper leaves alone."""
    try:
        return children.spawn(argv, **options)
    except FileNotFoundError as error:
        raise Unavailable(
            f"{argv[0]!r} is not installed on this host; `{SANDLOT} doctor` says how to get it"
        ) from error


async def _ended(child: subprocess.Popen[bytes], timeout_s: float) -> int:
    """Wait through a pidfd, so that the pid cannot be somebody else's; kill on timeout and on cancellation."""
    pidfd = os.pidfd_open(child.pid)
    try:
        try:
            await asyncio.wait_for(readable(pidfd), timeout_s)
        except (TimeoutError, asyncio.CancelledError) as error:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            await readable(pidfd)
            child.wait()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise CommandFailed(child.args, -signal.SIGKILL, f"no end after {timeout_s:g} s") from error  # type: ignore[arg-type]
        return child.wait()
    finally:
        os.close(pidfd)


async def readable(fd: int) -> None:
    """Return when `fd` can be read (for a pidfd: when the process has ended)."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    loop.add_reader(fd, wake)
    try:
        await future
    finally:
        loop.remove_reader(fd)


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Await something that must not stop halfway: a cancellation is passed on when it is done."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        if not task.cancelled() and task.exception() is not None:
            log.warning("work that had to finish before a cancellation failed: %s", task.exception())
        raise


def _read(file: IO[bytes]) -> bytes:
    return os.pread(file.fileno(), OUTPUT_LIMIT, 0)


def enter_private_mounts() -> None:
    """Move this process into its own mount namespace and cover what keeps runtimes from working on some hosts.

    Call once, before threads and before mounting anything. Mounts made on the host later still arrive here (slave),
    mounts made here never leave, and all of them end with this process.
    """
    global _host_mounts
    if _host_mounts is not None:
        return
    _host_mounts = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    _share("/run/netns")
    _check(_libc.unshare(CLONE_NEWNS), "move into a mount namespace of its own (Sandlot must run as root)")
    mount("none", "/", None, MS_REC | MS_SLAVE)
    if _is_hybrid():  # crun refuses a v1 hierarchy with controllers on the v2 mount beside it
        # Covered, not taken away: crun writes there all the same, and must not write into the host's directory below.
        mount("none", "/sys/fs/cgroup/unified", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    # runsc before 2025 takes a readable /proc/sys/net/core for the root network namespace (gVisor #10704).
    mount("none", "/proc/sys/net", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def _share(directory: str) -> None:
    """Have what is mounted below arrive in namespaces made from now on, also where the host's root shares nothing."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    if _libc.mount(None, directory.encode(), None, MS_SHARED, None) != 0:  # not a mount of its own yet
        mount(directory, directory, None, MS_BIND)
        mount("none", directory, None, MS_SHARED)


def _is_hybrid() -> bool:
    return Path("/sys/fs/cgroup/unified/cgroup.controllers").exists()


def _entering_host_mounts() -> tuple[str, ...]:
    return () if _host_mounts is None else ("nsenter", f"--mount=/proc/{os.getpid()}/fd/{_host_mounts}", "--")


def mount(source: str, target: str | Path, kind: str | None, flags: int = 0, data: str = "") -> None:
    _check(
        _libc.mount(
            source.encode(), os.fsencode(target), kind.encode() if kind else None, flags, data.encode() or None
        ),
        f"mount {kind or 'flags'} on {target}",
    )


def unmount(target: str | Path) -> None:
    """Take a mount away, now or when its last user ends. Nothing mounted there is fine."""
    if _libc.umount2(os.fsencode(target), MNT_DETACH) != 0 and ctypes.get_errno() not in (2, 22):  # ENOENT, EINVAL
        _check(-1, f"unmount {target}")


def _check(result: int, doing: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise Unavailable(f"could not {doing}: {os.strerror(number)}")


def become_subreaper() -> None:
    """Have orphans of runtimes handed to this process, which reaps them at once (pid 1 may be slow to)."""
    _check(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "become a child subreaper")


def reap_orphans() -> None:
    """Reap ended children that nobody waits for."""
    if children.is_spawning():
        return  # `run` looks again when its child has ended
    for pid in _children():
        if pid > 1 and pid not in _own and _is_zombie(pid):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def watch_orphans() -> None:
    """Reap orphans whenever a child ends. Uses a plain handler: uvloop keeps its own for this signal from others."""
    global _reaping
    become_subreaper()
    _reaping = True
    signal.signal(signal.SIGCHLD, lambda *_: reap_orphans())


def _children() -> Iterable[int]:
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            yield from map(int, (task / "children").read_text().split())


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return False
