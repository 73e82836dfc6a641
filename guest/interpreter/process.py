"""The process of a kernel and the file that tells it where to listen; of the standard library alone, so that kernels can start
while the server still loads."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import uuid
from pathlib import Path

from interpreter.languages import Language

CHANNELS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
LOOPBACK = "127.0.0.1"
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)
END_LIMIT_S = 10.0


class KernelProcess:
    """Runs from the moment it is made."""

    def __init__(self, language: Language, cwd: str, state: Path) -> None:
        self.language = language
        self.cwd = cwd
        self.connection_file = state / f"{uuid.uuid4().hex[:12]}.json"
        _write(self.connection_file, _connection(language.transport, self.connection_file))
        self.environment = {**os.environ, **language.environment}
        argv = [part.replace("{connection_file}", str(self.connection_file)) for part in language.argv]
        self._process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # and so the leader of a group: what it starts is signalled with it
            preexec_fn=_die_with_parent,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def status(self) -> int | None:
        """As subprocess has it: negative for signals; None while it runs."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        if self.alive:
            self._process.send_signal(number)

    def send_to_group(self, number: signal.Signals) -> None:
        if self.alive and self.pid > 1:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def end(self) -> None:
        """Idempotent, and waits; afterwards neither the process, nor what it started in its group, nor its files are there."""
        self.send_to_group(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_LIMIT_S)
        for left in self.connection_file.parent.glob(f"{self.connection_file.stem}*"):
            left.unlink(missing_ok=True)


def _connection(transport: str, file: Path) -> dict[str, str | int]:
    """Where the kernel listens: for ipc, ports are the ends of the names of sockets beside the file."""
    ports = range(1, len(CHANNELS) + 1) if transport == "ipc" else _free_ports(len(CHANNELS))
    return {
        "transport": transport,
        "ip": str(file.with_suffix("")) if transport == "ipc" else LOOPBACK,
        "key": uuid.uuid4().hex,
        "signature_scheme": "hmac-sha256",
        **dict(zip(CHANNELS, ports, strict=True)),
    }


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((LOOPBACK, 0))
        return [one.getsockname()[1] for one in sockets]


def _write(file: Path, connection: dict[str, str | int]) -> None:
    """Only for the owner's eyes: who has the key can run code in the kernel."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as text:
        json.dump(connection, text)


def _die_with_parent() -> None:
    """Runs in the child: no kernel outlives a server that was killed, and kernels go first when memory runs out."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:  # noqa: PTH123
        score.write("1000")
