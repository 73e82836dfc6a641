"""Runs commands as root for those who may use sudo, where the kernel does not do it: gVisor ignores set-user-ID bits.

`/.sandlot/bin/sudo` hands its descriptors, arguments and environment to the daemon over a socket, and waits. The daemon asks the
kernel who is calling, looks into sudoers whether that user may, and starts the command on the caller's descriptors.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct

from envd import logs, spawning
from envd.users import UnknownUser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from envd.processes import Processes
    from envd.users import User, Users

MAX_REQUEST = 192 * 1024
MAX_WAITING = 64
PATIENCE_S = 10
_FORWARDED = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2})


class Elevation:
    """Listens for the stand-in of sudo."""

    def __init__(self, users: Users, processes: Processes, path: str, etc: str = "/etc") -> None:
        self._users = users
        self._processes = processes
        self._path = path
        self._etc = etc
        self._callers: set[socket.socket] = set()
        self._listener: socket.socket | None = None

    def open(self) -> None:
        """Start to listen. A sandbox without a place for the socket works, only without this."""
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o755, exist_ok=True)
            if os.path.lexists(self._path):
                os.unlink(self._path)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
            listener.bind(self._path)
            os.chmod(self._path, 0o666)
            listener.listen(MAX_WAITING)
            listener.setblocking(False)
        except OSError as error:
            logs.report("sudo is not available", error)
            return
        self._listener = listener
        asyncio.get_running_loop().add_reader(listener, self._accept)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            caller, _ = self._listener.accept()
        except OSError:
            return
        caller.setblocking(False)
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        if len(self._callers) >= MAX_WAITING:
            caller.close()
            return
        self._callers.add(caller)
        loop = asyncio.get_running_loop()
        loop.add_reader(caller, self._receive, caller, loop.call_later(PATIENCE_S, self._drop, caller))

    def _drop(self, caller: socket.socket) -> None:
        if caller in self._callers:
            self._callers.discard(caller)
            asyncio.get_running_loop().remove_reader(caller)
            caller.close()

    def _receive(self, caller: socket.socket, patience: asyncio.TimerHandle) -> None:
        patience.cancel()
        asyncio.get_running_loop().remove_reader(caller)
        descriptors: list[int] = []
        try:
            message, descriptors, uid = _read(caller)
            import json  # not at the daemon's start, which counts

            pid = self._start(self._caller(uid), json.loads(message), descriptors)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, UnknownUser) as error:
            self._answer(caller, {"error": _words(error)})
            self._drop(caller)
        else:
            self._processes.watch(pid, lambda status: self._ended(caller, status))
            asyncio.get_running_loop().add_reader(caller, self._told, caller, pid)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _caller(self, uid: int) -> User:
        user = self._users.find(self._users.user_name(uid))
        if uid != 0 and not self._may(user):
            raise PermissionError(f"{user.name} is not in the sudoers file")
        return user

    def _may(self, user: User) -> bool:
        """Whether a rule without a password names the user, or one of the user's groups."""
        names = {user.name, *(f"%{self._users.group_name(gid)}" for gid in user.groups)}
        files = [f"{self._etc}/sudoers"]
        with contextlib.suppress(OSError):  # there is no such directory
            files += [f"{self._etc}/sudoers.d/{name}" for name in sorted(os.listdir(f"{self._etc}/sudoers.d"))]
        for path in files:
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    rules = [line.split() for line in file.read(1 << 20).splitlines()]
            except OSError:
                continue
            if any(rule and rule[0] in names and "NOPASSWD:" in " ".join(rule) for rule in rules):
                return True
        return False

    def _start(self, user: User, request: dict[str, object], descriptors: list[int]) -> int:
        argv, environment, cwd, name = (request[key] for key in ("argv", "env", "cwd", "user"))
        if not isinstance(argv, list) or not argv or not isinstance(environment, dict):
            raise ValueError("the request is not whole")
        if not isinstance(cwd, str) or not isinstance(name, str):
            raise ValueError("the request is not whole")
        target = self._users.find(self._users.user_name(int(name[1:])) if name.startswith("#") else name)
        logs.log("info", "sudo", user=user.name, target=target.name, cmd=" ".join(map(str, argv))[:1000])
        launch = spawning.Launch([str(part) for part in argv], environment, cwd, target)
        return spawning.spawn_on(launch, descriptors[0], descriptors[1], descriptors[2])

    def _told(self, caller: socket.socket, pid: int) -> None:
        """A signal to pass on; or the caller is gone, and with it what it asked for."""
        try:
            data = caller.recv(16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        number = int(data) if data.isdigit() else signal.SIGHUP
        if not data:
            asyncio.get_running_loop().remove_reader(caller)
        with contextlib.suppress(OSError):  # it has ended
            if number in _FORWARDED:
                os.killpg(pid, number)

    def _ended(self, caller: socket.socket, status: int) -> None:
        self._answer(caller, {"status": os.waitstatus_to_exitcode(status)})
        self._drop(caller)

    def _answer(self, caller: socket.socket, answer: dict[str, object]) -> None:
        import json

        with contextlib.suppress(OSError):  # it did not wait
            caller.send(json.dumps(answer).encode())


def _read(caller: socket.socket) -> tuple[bytes, list[int], int]:
    """The request, the descriptors that came with it, and who sent it.

    The kernel vouches for credentials that are part of a message. SO_PEERCRED would be simpler, but in gVisor it names
    the one who asks. Raises ValueError, with no descriptor left open.
    """
    space = socket.CMSG_SPACE(12) + socket.CMSG_SPACE(3 * 4)
    message, parts, flags, _ = caller.recvmsg(MAX_REQUEST, space, socket.MSG_CMSG_CLOEXEC)
    descriptors: list[int] = []
    uid: int | None = None
    for level, kind, data in parts:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors += struct.unpack(f"{len(data) // 4}i", data[: len(data) // 4 * 4])
        elif level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS and len(data) == 12:
            uid = struct.unpack("3i", data)[1]
    if len(descriptors) != 3 or uid is None or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        for descriptor in descriptors:
            os.close(descriptor)
        raise ValueError("the request is not whole")
    return message, descriptors, uid


def _words(error: Exception) -> str:
    if isinstance(error, UnknownUser):
        return f"unknown user {error}"
    if isinstance(error, FileNotFoundError) and "/" not in str(error.filename):
        return f"{error.filename}: command not found"
    if isinstance(error, OSError) and error.errno:
        return f"{error.filename or 'command'}: {error.strerror}"
    return str(error) or type(error).__name__
