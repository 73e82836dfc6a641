"""Starts a program as a user of the sandbox, in a session of its own, with pipes or a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import termios
from _posixsubprocess import fork_exec

from envd import threads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from envd.users import User

_OOM_SCORE = "/proc/{}/oom_score_adj"


class Launch:
    """What to start: program, arguments, environment, directory and the user it runs as."""

    __slots__ = ("argv", "cwd", "environment", "user")

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], cwd: str, user: User) -> None:
        self.argv = [os.fsencode(part) for part in argv]
        if self.argv[0] == b"/bin/bash" and not os.path.exists(self.argv[0]):
            self.argv[0] = b"/bin/sh"  # E2B's clients always ask for bash, which small images do not have
        self.environment = [os.fsencode(f"{name}={value}") for name, value in environment.items()]
        self.cwd = cwd
        self.user = user

    def candidates(self) -> list[bytes]:
        """Paths to try, in the order a shell would."""
        program = self.argv[0]
        if b"/" in program:
            return [program]
        path = next((item[5:] for item in self.environment if item.startswith(b"PATH=")), b"")
        return [(directory or b".") + b"/" + program for directory in path.split(b":")]


def spawn_piped(launch: Launch, with_stdin: bool) -> tuple[int, int | None, int, int]:
    """Start with pipes: (pid, our end of stdin or None, of stdout, of stderr). Raises OSError."""
    opened: list[int] = []
    try:
        if with_stdin:
            stdin_read, stdin_write = _pipe(opened)
        else:
            stdin_read, stdin_write = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC), -1
            opened.append(stdin_read)
        stdout_read, stdout_write = _pipe(opened)
        stderr_read, stderr_write = _pipe(opened)
        pid = _fork_exec(launch, stdin_read, stdout_write, stderr_write)
    except BaseException:
        _close(*opened)
        raise
    _close(stdin_read, stdout_write, stderr_write)
    for end in (stdin_write, stdout_read, stderr_read):
        if end >= 0:
            os.set_blocking(end, False)
    return pid, stdin_write if with_stdin else None, stdout_read, stderr_read


def spawn_on(launch: Launch, stdin: int, stdout: int, stderr: int) -> int:
    """Start on descriptors that somebody else has: the pid. Raises OSError."""
    return _fork_exec(launch, stdin, stdout, stderr)


def _pipe(opened: list[int]) -> tuple[int, int]:
    pair = os.pipe2(os.O_CLOEXEC)
    opened.extend(pair)
    return pair


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _fork_exec(launch: Launch, stdin: int, stdout: int, stderr: int) -> int:
    """The C half of `subprocess`, without the parts this daemon does not need: it runs no Python in the child."""
    errors_read, errors_write = os.pipe2(os.O_CLOEXEC)
    user = launch.user
    start: Callable[..., int] = fork_exec
    becomes_user = _can_lend_identity()
    identity = (None, None, None) if becomes_user else (user.gid, list(user.groups), user.uid)
    arguments = (
        launch.argv, launch.candidates(), False, (), launch.cwd, launch.environment,
        stdin, -1, -1, stdout, -1, stderr, errors_read, errors_write,
        True, True, -1, *identity, -1, None,
    )  # fmt: skip
    try:
        try:
            if becomes_user:
                _become(user)
            try:
                pid = start(*arguments, True)
            except TypeError:  # newer Pythons have no last argument
                pid = start(*arguments)
        finally:
            if becomes_user:
                _become_root()
            os.close(errors_write)
        failure = os.read(errors_read, 4096)
    finally:
        os.close(errors_read)
    if failure:
        os.waitpid(pid, 0)
        _kind, number, where = failure.split(b":", 2)
        raise _failure(launch, int(number, 16), where.startswith(b"noexec"))
    return pid


def _can_lend_identity() -> bool:
    """Whether this process may take the user's identity while it starts the child, instead of the child doing so.

    A child that changes its user must be forked; one that need not is started by vfork, which copies no memory: under
    gVisor that is ten times as fast. The saved user id stays root, and is what we come back by; exec drops it.
    """
    return os.geteuid() == 0 and not threads.are_active() and not _has_ambient_capabilities()


def _become(user: User) -> None:
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, 0)
    os.setresuid(user.uid, user.uid, 0)


def _become_root() -> None:
    os.setresuid(0, 0, 0)
    os.setresgid(0, 0, 0)
    os.setgroups(_GROUPS)


_GROUPS = os.getgroups()
_ambient: bool | None = None


def _has_ambient_capabilities() -> bool:
    """Ambient capabilities survive exec unless all user ids change for good."""
    global _ambient
    if _ambient is None:
        try:
            with open("/proc/self/status", encoding="ascii", errors="replace") as file:
                line = next((line for line in file if line.startswith("CapAmb:")), "CapAmb: 0")
            _ambient = int(line.split()[1], 16) != 0
        except (OSError, ValueError):
            _ambient = True
    return _ambient


def _failure(launch: Launch, number: int, in_directory: bool) -> OSError:
    subject = launch.cwd if in_directory else os.fsdecode(launch.argv[0])
    return OSError(number, os.strerror(number), subject)


def spawn_on_terminal(launch: Launch, columns: int, rows: int) -> tuple[int, int]:
    """Start on a new terminal, as leader of its session: (pid, our side of the terminal). Raises OSError."""
    master, slave = os.openpty()
    try:
        resize(master, columns, rows)
        os.fchown(slave, launch.user.uid, -1)
        candidates = launch.candidates()
        environment = dict(item.split(b"=", 1) for item in launch.environment)
        errors_read, errors_write = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            _become_terminal_leader(launch, slave, candidates, environment, errors_write)
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)
    os.close(errors_write)
    failure = os.read(errors_read, 16)
    os.close(errors_read)
    if failure:
        os.waitpid(pid, 0)
        os.close(master)
        raise _failure(launch, abs(int(failure)), failure.startswith(b"-"))
    os.set_blocking(master, False)
    return pid, master


def _become_terminal_leader(
    launch: Launch, slave: int, candidates: list[bytes], environment: dict[bytes, bytes], errors: int
) -> None:
    """The child's side of a fork: only ends by exec or exit."""
    sign = 1
    try:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for descriptor in (0, 1, 2):
            os.dup2(slave, descriptor, inheritable=True)
        import signal

        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(ignored, signal.SIG_DFL)
        os.setgroups(launch.user.groups)
        os.setgid(launch.user.gid)
        os.setuid(launch.user.uid)
        sign = -1
        os.chdir(launch.cwd)
        sign = 1
        number = 2
        for candidate in candidates:
            try:
                os.execve(candidate, launch.argv, environment)
            except OSError as error:
                number = error.errno or 2
                if number not in (2, 20):
                    break
        os.write(errors, b"%d" % number)
    except OSError as error:
        os.write(errors, b"%d" % (sign * (error.errno or 5)))
    finally:
        os._exit(127)


def resize(terminal: int, columns: int, rows: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows & 0xFFFF, columns & 0xFFFF, 0, 0))


def announce_size(terminal: int, session: int) -> None:
    """Signal a changed size where the kernel does not: gVisor's terminals neither send SIGWINCH nor tell who is in front.

    Everybody in the session gets it; who did not ask for this signal ignores it.
    """
    with contextlib.suppress(OSError):
        os.tcgetpgrp(terminal)
        return
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, ValueError):
            if int(name) > 1 and os.getsid(int(name)) == session:
                os.kill(int(name), signal.SIGWINCH)


def protect_from_oom() -> bool:
    """Ask the kernel to end anything else first; true if commands must be taken out of that protection."""
    try:
        with open(_OOM_SCORE.format("self"), "r+b", buffering=0) as file:
            if int(file.read()) > -900:
                file.write(b"-900")
        return True
    except (OSError, ValueError):
        return False


def expose_to_oom(pid: int) -> None:
    try:
        with open(_OOM_SCORE.format(pid), "wb", buffering=0) as file:
            file.write(b"0")
    except OSError:
        pass  # it is gone already
