"""The stand-in for sudo: reads its command line, asks the daemon to run the command, ends as the command ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import sys

from envd.users import UnknownUser, Users

SOCKET = "/run/e2b/sudo.sock"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_KEPT = (
    "TERM",
    "LANG",
    "LANGUAGE",
    "COLORTERM",
    "DISPLAY",
    "XAUTHORITY",
    "TZ",
    "COLUMNS",
    "LINES",
    "HTTP_PROXY",
    "HTTPS_PROXY",
)
_KEPT_TOO = ("LC_", "http_proxy", "https_proxy", "no_proxy", "E2B_")
_WITH_VALUE = {
    "-u": "user",
    "-g": "group",
    "-p": "prompt",
    "-C": "close",
    "-D": "chdir",
    "-h": "host",
    "-T": "timeout",
    "-r": "role",
    "-t": "type",
    "-R": "chroot",
    "-U": "other",
}
_LONG_WITH_VALUE = {
    "--user": "user",
    "--group": "group",
    "--prompt": "prompt",
    "--chdir": "chdir",
    "--close-from": "close",
    "--host": "host",
}
_FLAGS = {
    "-E": "keep", "--preserve-env": "keep", "-i": "login", "--login": "login", "-s": "shell", "--shell": "shell",
    "-v": "validate", "--validate": "validate", "-l": "list", "--list": "list", "-V": "version", "--version": "version",
    "-K": "forget", "-k": "forget", "--remove-timestamp": "forget", "--reset-timestamp": "forget",
}  # fmt: skip
_IGNORED = frozenset(
    [
        "-n",
        "-S",
        "-H",
        "-A",
        "-b",
        "-B",
        "-P",
        "--non-interactive",
        "--stdin",
        "--set-home",
        "--askpass",
        "--background",
        "--bell",
        "--preserve-groups",
    ]
)


class BadUsage(Exception):
    pass


class Wish:
    """What a command line asks for."""

    __slots__ = ("command", "flags", "kept", "values", "variables")

    def __init__(self) -> None:
        self.flags: set[str] = set()
        self.values: dict[str, str] = {}
        self.kept: list[str] = []
        self.variables: dict[str, str] = {}
        self.command: list[str] = []


def parse(arguments: list[str]) -> Wish:
    """Raises `BadUsage`."""
    wish, rest = Wish(), list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            _take_long(word, rest, wish)
        else:
            _take_short(word, rest, wish)
    while rest and "=" in rest[0].lstrip("=") and rest[0].partition("=")[0].isidentifier():
        name, _, value = rest.pop(0).partition("=")
        wish.variables[name] = value
    wish.command = rest
    return wish


def _take_long(word: str, rest: list[str], wish: Wish) -> None:
    name, given, value = word.partition("=")
    if name in _LONG_WITH_VALUE:
        if not given and not rest:
            raise BadUsage(f"option '{name}' requires an argument")
        wish.values[_LONG_WITH_VALUE[name]] = value if given else rest.pop(0)
    elif name == "--preserve-env" and given:
        wish.kept += value.split(",")
    elif name in _FLAGS:
        wish.flags.add(_FLAGS[name])
    elif name not in _IGNORED:
        raise BadUsage(f"unrecognized option '{word}'")


def _take_short(word: str, rest: list[str], wish: Wish) -> None:
    letters = word[1:]
    while letters:
        option, letters = f"-{letters[0]}", letters[1:]
        if option in _WITH_VALUE:
            if not letters and not rest:
                raise BadUsage(f"option requires an argument -- '{option[1]}'")
            wish.values[_WITH_VALUE[option]] = letters or rest.pop(0)
            return
        if option in _FLAGS:
            wish.flags.add(_FLAGS[option])
        elif option not in _IGNORED:
            raise BadUsage(f"invalid option -- '{option[1]}'")


def request(wish: Wish, users: Users, environment: dict[str, str], cwd: str, uid: int, gid: int) -> dict[str, object]:
    """What to ask of the daemon. Raises `UnknownUser`."""
    name = wish.values.get("user", "root")
    target = users.find(users.user_name(int(name[1:])) if name[:1] == "#" and name[1:].isdigit() else name)
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    argv = wish.command
    if wish.flags & {"login", "shell"}:
        argv = [shell, *(["-l"] if "login" in wish.flags else []), *(["-c", _quoted(argv)] if argv else [])]
    kept = (
        environment
        if "keep" in wish.flags
        else {
            key: value
            for key, value in environment.items()
            if key in _KEPT or key in wish.kept or key.startswith(_KEPT_TOO)
        }
    )
    identity = {"HOME": target.home, "LOGNAME": target.name, "USER": target.name, "SHELL": shell, "PATH": _PATH}
    if "keep" in wish.flags or "PATH" in wish.kept:
        identity["PATH"] = environment.get("PATH", _PATH) if "PATH" in wish.kept else _PATH
    caller = {
        "SUDO_USER": users.user_name(uid), "SUDO_UID": str(uid), "SUDO_GID": str(gid), "SUDO_COMMAND": " ".join(argv),
    }  # fmt: skip
    where = wish.values.get("chdir") or (target.home if "login" in wish.flags else cwd)
    return {"argv": argv, "env": {**kept, **identity, **caller, **wish.variables}, "cwd": where, "user": target.name}


def _quoted(argv: list[str]) -> str:
    """One line for a shell, in which every character but the plain ones is taken as it is."""
    return " ".join("".join(c if c.isalnum() or c in "_-$" else "\\" + c for c in word) for word in argv)


def run() -> None:
    sys.exit(main(sys.argv[1:]))


def main(arguments: list[str]) -> int:
    try:
        wish = parse(arguments)
        if wish.flags & {"validate", "forget"} and not wish.command:
            return 0
        if "version" in wish.flags:
            print("sudo: a stand-in that asks the sandbox's daemon")
            return 0
        if "list" in wish.flags:
            print("This user may run the following commands:\n    (ALL : ALL) NOPASSWD: ALL")
            return 0
        if not wish.command and not wish.flags & {"login", "shell"}:
            raise BadUsage("usage: sudo [-EHins] [-u user] [VAR=value] command [arguments]")
        asked = request(wish, Users(), dict(os.environ), os.getcwd(), os.getuid(), os.getgid())
    except BadUsage as error:
        return _fail(str(error))
    except UnknownUser as error:
        return _fail(f"unknown user {error}")
    return _ask(asked)


def _ask(asked: dict[str, object]) -> int:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as daemon:
            daemon.connect(SOCKET)
            for number in (
                signal.SIGINT,
                signal.SIGTERM,
                signal.SIGHUP,
                signal.SIGQUIT,
                signal.SIGUSR1,
                signal.SIGUSR2,
            ):
                signal.signal(number, lambda given, _frame: _pass_on(daemon, given))
            own = struct.pack("3i", os.getpid(), os.getuid(), os.getgid())  # the kernel checks it
            streams = struct.pack("3i", 0, 1, 2)
            ancillary = [
                (socket.SOL_SOCKET, socket.SCM_CREDENTIALS, own),
                (socket.SOL_SOCKET, socket.SCM_RIGHTS, streams),
            ]
            daemon.sendmsg([json.dumps(asked).encode()], ancillary)
            answer = json.loads(daemon.recv(65536) or b"{}")
    except OSError as error:
        return _fail(f"the sandbox's daemon does not answer: {error.strerror}")
    if "status" not in answer:
        return _fail(str(answer.get("error", "the sandbox's daemon went away")))
    status = int(answer["status"])
    return status if status >= 0 else 128 - status


def _pass_on(daemon: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # it has ended
        daemon.send(str(number).encode())


def _fail(reason: str) -> int:
    print(f"sudo: {reason}", file=sys.stderr)
    return 1
