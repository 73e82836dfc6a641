"""Control groups of machines, v1 and v2: what a group uses, why it was cut short, holding it still, ending all in it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sandlot.engine.core.errors import MachineFailed

ROOT = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of a group's counters."""

    cpu_ns: int
    mem_used: int  # without the page cache, with shared memory
    mem_cache: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the processes of a group may use together."""

    memory_bytes: int
    processes: int
    cpus: float


class Cgroup:
    """One machine's group: a directory of the same name in each hierarchy of v1, or in the one of v2."""

    def __init__(self, path: str) -> None:
        self.path = path  # from the hierarchy's root, e.g. "/sandlot-1a2b3c/i9x"

    @cached_property
    def _is_v2(self) -> bool:
        return (ROOT / "cgroup.controllers").exists()

    def _dir(self, controller: str) -> Path:
        return (ROOT if self._is_v2 else ROOT / controller) / self.path.lstrip("/")

    def _dirs(self) -> list[Path]:
        roots = [ROOT] if self._is_v2 else [entry for entry in ROOT.iterdir() if (entry / "cgroup.procs").exists()]
        return [root / self.path.lstrip("/") for root in roots]

    def exists(self) -> bool:
        return any(path.is_dir() for path in self._dirs())

    def make(self, limits: Limits) -> list[Path]:
        """Make the group, with limits; the directories that a process has to join to be in it."""
        quota = str(int(limits.cpus * _PERIOD_US))
        if self._is_v2:
            path = self._dir("")
            path.mkdir(parents=True)
            for above in (ROOT, path.parent):
                (above / "cgroup.subtree_control").write_text("+memory +pids +cpu")
            files = {
                "memory.max": str(limits.memory_bytes),
                "memory.swap.max": "0",
                "pids.max": str(limits.processes),
                "cpu.max": f"{quota} {_PERIOD_US}",
            }
            return [_fill(path, files)]
        memory = {"memory.limit_in_bytes": str(limits.memory_bytes)}
        if counts_swap():
            memory["memory.memsw.limit_in_bytes"] = str(limits.memory_bytes)
        files_of = {
            "memory": memory,
            "pids": {"pids.max": str(limits.processes)},
            "cpu": {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": quota},
        }
        made = []
        for controller, files in files_of.items():
            self._dir(controller).mkdir(parents=True)
            made.append(_fill(self._dir(controller), files))
        return made

    def sample(self) -> Sample:
        """Raises `FileNotFoundError` when the group is gone."""
        memory = _table(self._dir("memory") / "memory.stat")
        if self._is_v2:
            cpu_ns = _table(self._dir("cpu") / "cpu.stat")["usage_usec"] * 1000
            used = _number(self._dir("memory") / "memory.current")
            cache = memory["file"] - memory["shmem"]
        else:
            cpu_ns = _number(self._dir("cpuacct") / "cpuacct.usage")
            used = _number(self._dir("memory") / "memory.usage_in_bytes")
            cache = memory["total_cache"] - memory.get("total_shmem", memory.get("shmem", 0))
        cache = max(0, cache)
        return Sample(cpu_ns, max(0, used - cache), cache)

    def oom_kills(self) -> int:
        name = "memory.events" if self._is_v2 else "memory.oom_control"
        return _event(self._dir("memory") / name, "oom_kill")

    def refused_forks(self) -> int:
        """How often the limit on processes and threads was hit."""
        return _event(self._dir("pids") / "pids.events", "max")

    def freeze(self) -> None:
        self._set_frozen(True)

    def thaw(self) -> None:
        self._set_frozen(False)

    def is_frozen(self) -> bool:
        """Whether every task in the group stands still."""
        if self._is_v2:
            return _event(self._dir("freezer") / "cgroup.events", "frozen") == 1
        return (self._dir("freezer") / "freezer.state").read_text().strip() == "FROZEN"

    def _set_frozen(self, frozen: bool) -> None:
        if self._is_v2:
            (self._dir("freezer") / "cgroup.freeze").write_text("1" if frozen else "0")
        else:
            (self._dir("freezer") / "freezer.state").write_text("FROZEN" if frozen else "THAWED")

    def holds(self, pid: int) -> bool:
        """Whether this process is in the group (or below it) now."""
        try:
            lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        except OSError:
            return False
        inside = (line.split(":", 2)[2] for line in lines)
        return any(path == self.path or path.startswith(self.path + "/") for path in inside)

    def pids(self) -> set[int]:
        return {pid for top in self._dirs() for path in _tree(top) for pid in _procs(path)}

    async def kill(self, timeout_s: float = 30) -> None:
        """End every process in the group, by pidfd, and return when none is left. An absent group is fine."""
        pause_s, waited_s = 0.001, 0.0
        while pids := self.pids():
            if waited_s > timeout_s:
                raise MachineFailed(f"processes of {self.path} did not end; the host may be stuck on its disk")
            if not self._is_v2:  # a frozen v1 group would keep its processes until it is let go
                with contextlib.suppress(OSError):
                    self.thaw()
            for pid in pids:
                self._kill_one(pid)
            await asyncio.sleep(pause_s)
            waited_s += pause_s
            pause_s = min(pause_s * 2, 0.05)

    def _kill_one(self, pid: int) -> None:
        if pid <= 1:  # 0 is a process this pid namespace cannot name
            return
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(pid)
            try:
                if self.holds(pid):  # read through the pid while the pidfd pins it: it cannot be somebody else's
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            finally:
                os.close(pidfd)

    async def remove(self) -> None:
        """Remove the group's directories. The kernel lets go of the last process a moment after it has ended."""
        for _ in range(200):
            if await asyncio.to_thread(self.remove_now):
                return
            await asyncio.sleep(0.005)
        raise MachineFailed(f"the control group {self.path} is still in use; nothing else may be put into it")

    def remove_now(self) -> bool:
        """Whether it could be removed."""
        if not all(_remove_tree(path) for path in self._dirs()):
            return False
        # On hybrid hosts crun writes to where the v2 hierarchy would be, although the server covers it.
        shutil.rmtree(ROOT / "unified" / self.path.lstrip("/"), ignore_errors=True)
        return True


def names(parent: str) -> set[str]:
    """Names of the groups directly below `parent`, in any hierarchy."""
    found = set()
    for top in Cgroup(parent)._dirs():
        with contextlib.suppress(FileNotFoundError):
            found |= {entry.name for entry in top.iterdir() if entry.is_dir()}
    return found


def weigh(parent: str) -> None:
    """Give all machines together a weight as that of as many host processes as there are processors.

    As the kernel makes it, a group weighs as much as one process: beside a busy host a hundred sandboxes would share what one
    process gets.
    """
    group, processors = Cgroup(parent), os.cpu_count() or 1
    with contextlib.suppress(OSError):  # a host that does not weigh groups gives them what is left
        if group._is_v2:
            (group._dir("cpu") / "cpu.weight").write_text(str(min(10_000, 100 * processors)))
        else:
            (group._dir("cpu") / "cpu.shares").write_text(str(1024 * processors))


def remove_if_empty(parent: str) -> None:
    for top in Cgroup(parent)._dirs():
        with contextlib.suppress(OSError):
            top.rmdir()


def counts_swap() -> bool:
    """Whether this host can count swap as memory (v1 needs `swapaccount=1` at boot on some kernels)."""
    is_v2 = (ROOT / "cgroup.controllers").exists()
    return is_v2 or (ROOT / "memory" / "memory.memsw.limit_in_bytes").exists()


def _fill(directory: Path, files: Mapping[str, str]) -> Path:
    for name, value in files.items():
        if name != "memory.swap.max" or (directory / name).exists():
            (directory / name).write_text(value)
    return directory


def _tree(top: Path) -> Iterator[Path]:
    """The directory and all groups below it, deepest first."""
    try:
        children = [entry for entry in top.iterdir() if entry.is_dir()]
    except FileNotFoundError:
        return
    for child in children:
        yield from _tree(child)
    yield top


def _remove_tree(top: Path) -> bool:
    for path in _tree(top):
        try:
            path.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def _procs(group: Path) -> list[int]:
    try:
        return [int(line) for line in (group / "cgroup.procs").read_text().split()]
    except OSError:  # gone, or (v2) a group whose threads are listed above it
        return []


def _number(path: Path) -> int:
    return int(path.read_text())


def _table(path: Path) -> dict[str, int]:
    return {key: int(value) for key, value in (line.split() for line in path.read_text().splitlines())}


def _event(path: Path, key: str) -> int:
    """A counter of a flat key file; 0 where the file, or the group, is not there."""
    try:
        return _table(path).get(key, 0)
    except (OSError, ValueError):
        return 0


class CpuMeter:
    """The share of its CPUs that a group used between two looks."""

    def __init__(self) -> None:
        self._looks: dict[str, tuple[float, int]] = {}  # path -> when the counter was last read, and what it said

    def look(self, group: Cgroup, cpu_count: int = 1) -> tuple[float, Sample]:
        sample, now = group.sample(), time.monotonic()
        then, cpu_ns = self._looks.get(group.path, (now, sample.cpu_ns))
        self._looks[group.path] = (now, sample.cpu_ns)
        elapsed_ns = (now - then) * 1e9 * cpu_count
        return (min(100.0, 100 * (sample.cpu_ns - cpu_ns) / elapsed_ns) if elapsed_ns > 0 else 0.0), sample

    def forget(self, group: Cgroup) -> None:
        self._looks.pop(group.path, None)
