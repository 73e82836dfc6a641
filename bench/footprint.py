"""What an idle box costs the host: resident memory and CPU time, counted by one rule for every contestant."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Footprint:
    """A reading at one moment. Take two and subtract for a rate."""

    memory_bytes: int
    cpu_s: float


def read(box_id: str) -> Footprint:
    """The box's own control group, plus host processes that work for this box alone but live outside it.

    Memory is what only this box makes resident: anonymous and shared-memory pages (page cache can be given back, and is
    shared between boxes of one template). A host process counts as the box's own if its command line names the box;
    that finds Docker's shim as well as a runtime's helper.
    """
    groups = _groups(box_id)
    inside = {int(pid) for group in groups for pid in _lines(group / "cgroup.procs")}
    outside = [pid for pid in _processes_naming(box_id) if pid not in inside]
    return Footprint(
        memory_bytes=_group_memory(groups) + sum(_process_memory(pid) for pid in outside),
        cpu_s=_group_cpu(groups) + sum(_process_cpu(pid) for pid in outside),
    )


def _groups(box_id: str) -> list[Path]:
    """The box's directory in every hierarchy: one of cgroup v2, several of v1."""
    found = [path for depth in range(4) for path in _CGROUPS.glob("*/" * depth + box_id) if path.is_dir()]
    if not found:
        raise LookupError(f"no control group is named {box_id}: did the box end while it was being measured?")
    return found


def _group_memory(groups: Iterable[Path]) -> int:
    for group in groups:
        stat = _pairs(group / "memory.stat")
        if "total_rss" in stat:  # v1; the totals include groups below
            return stat["total_rss"] + stat.get("total_shmem", 0)
        if "anon" in stat:
            return stat["anon"] + stat.get("shmem", 0)
    raise LookupError("the box has no memory controller; its memory cannot be counted")


def _group_cpu(groups: Iterable[Path]) -> float:
    for group in groups:
        if usage := _lines(group / "cpuacct.usage"):
            return int(usage[0]) / 1e9
        if "usage_usec" in (stat := _pairs(group / "cpu.stat")):
            return stat["usage_usec"] / 1e6
    raise LookupError("the box has no CPU accounting; its CPU time cannot be counted")


def _processes_naming(box_id: str) -> Iterator[int]:
    wanted = box_id.encode()
    for path in _PROC.glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes()
        except OSError:
            continue
        if wanted in arguments and int(path.parent.name) != os.getpid():
            yield int(path.parent.name)


def _process_memory(pid: int) -> int:
    """Proportional, so that the pages of one program shared by many processes are counted once."""
    for line in _lines(_PROC / str(pid) / "smaps_rollup"):
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _process_cpu(pid: int) -> float:
    for line in _lines(_PROC / str(pid) / "stat"):
        fields = line.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return 0.0


def _pairs(path: Path) -> dict[str, int]:
    return {name: int(value) for name, _, value in (line.partition(" ") for line in _lines(path))}


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:  # a file of the other cgroup version, or a process that just ended
        return []
