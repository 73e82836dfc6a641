"""What can be known from inside about the sandbox's memory: how much there is, and whether the kernel ran out of it."""

from __future__ import annotations

from pathlib import Path

EVENTS = (Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"), Path("/proc/vmstat"))
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
SCARCE = 0.1


def kills() -> int:
    """How often something was killed for memory, in the narrowest scope that can be seen."""
    for path in EVENTS:
        for line in _read(path).splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.strip().isdigit():
                return int(count)
    return 0


def total_mb() -> int | None:
    known = [int(text) for path in LIMITS if (text := _read(path).strip()).isdigit()]
    known += [value for value in [_meminfo().get("MemTotal")] if value]
    return min(known) >> 20 if known else None


def is_scarce() -> bool:
    """Whether little is left now. Where kills are not counted, this with a SIGKILL is what running out looks like."""
    numbers = _meminfo()
    return numbers.get("MemAvailable", 1) < SCARCE * numbers.get("MemTotal", 1)


def _meminfo() -> dict[str, int]:
    found = {}
    for line in _read(Path("/proc/meminfo")).splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            found[name] = int(words[0]) << 10
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
