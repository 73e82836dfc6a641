"""Runs programs that read foreign archives: with memory, processors, files and time of their own, and nothing of the host's network or processes."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sandlot.engine.core.errors import EngineError
from sandlot.engine.node import processes
from sandlot.engine.node.runtimes import cgroups
from sandlot.engine.node.runtimes.cgroups import Cgroup, Limits

log = logging.getLogger(__name__)

PARENT = "/sandlot-unpacking"
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
MEMORY_BYTES = 1 << 30
CPU_S = 1800
_OPEN_FILES = 256
_PROCESSES = 16
# Joins the groups, given by number and path, and becomes what follows.
_JOIN = (
    'n=$1; shift; while [ "$n" -gt 0 ]; do echo 0 >"$1/cgroup.procs" || exit 125; shift; n=$((n-1)); done; exec "$@"'
)
_FIRST = (
    '"$@"; exit $?'  # the first process of a namespace is deaf to the signals of limits, so the program is the second
)
_OUT_OF_TIME = {128 + signal.SIGXCPU, -signal.SIGKILL}  # by its limit, or by whoever waits for it


class OverLimit(EngineError):
    """The program needed more than it may have; the text says of what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What one program may use."""

    file_bytes: int  # the largest file it may write
    memory_bytes: int = MEMORY_BYTES
    cpu_s: int = CPU_S
    timeout_s: float = 3600


async def run(
    *argv: str,
    allowance: Allowance,
    input: bytes | None = None,
    env: Mapping[str, str] = ENVIRONMENT,
    pass_fds: Sequence[int] = (),
    stdin: IO[bytes] | None = None,
    stdout: IO[bytes] | None = None,
) -> processes.Completed:
    """Run a program to its end. Raises `OverLimit` when it used up what it has, `CommandFailed` when it failed otherwise."""
    group = Cgroup(f"{PARENT}/{os.getpid()}-{secrets.token_hex(6)}")
    _sweep()
    try:
        joined = _make(group, allowance)
        return await processes.run(
            *("/bin/sh", "-c", _JOIN, "sh", str(len(joined)), *map(str, joined)),
            *(
                "nice",
                "-n",
                "10",
                "prlimit",
                f"--as={allowance.memory_bytes}",
                f"--fsize={allowance.file_bytes}",
                "--core=0",
            ),
            *(f"--cpu={allowance.cpu_s}:{allowance.cpu_s + 10}", f"--nofile={_OPEN_FILES}", "--"),
            *("unshare", "--net", "--ipc", "--uts", "--pid", "--fork", "--kill-child", "--"),
            *("/bin/sh", "-c", _FIRST, "sh", *argv),
            input=input,
            timeout_s=allowance.timeout_s,
            env=env,
            pass_fds=pass_fds,
            stdin=stdin,
            stdout=stdout,
        )
    except processes.CommandFailed as error:
        is_memory = group.oom_kills() > 0
        if is_memory or error.status in _OUT_OF_TIME:
            raise OverLimit(_exceeded(allowance, is_memory)) from error
        raise
    finally:
        await group.kill()
        await group.remove()


def _exceeded(allowance: Allowance, is_memory: bool) -> str:
    most = f"{allowance.memory_bytes >> 20} MiB of memory" if is_memory else f"{allowance.cpu_s} s"
    return f"unpacking it takes more than the {most} that it may"


def _make(group: Cgroup, allowance: Allowance) -> list[Path]:
    limits = Limits(memory_bytes=allowance.memory_bytes, processes=_PROCESSES, cpus=1)
    try:
        return group.make(limits)
    except OSError as error:  # the limits of the process itself hold all the same
        log.warning("no control group for unpacking could be made: %s", error)
        return []


def _sweep() -> None:
    """Remove groups that a server which was killed left behind."""
    for name in cgroups.names(PARENT):
        pid = name.partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            with contextlib.suppress(OSError):
                Cgroup(f"{PARENT}/{name}").remove_now()
