"""Reads how much of its processors, memory and disk the sandbox uses, as seen from inside."""

from __future__ import annotations

import os
import time

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_last = (0, 0)


def measure() -> dict[str, object]:
    memory = _meminfo()
    total = memory.get("MemTotal", 0)
    cached = memory.get("Cached", 0) + memory.get("SReclaimable", 0)
    used = total - memory.get("MemFree", 0) - memory.get("Buffers", 0) - cached
    limit = _memory_limit()
    if limit is not None:
        total = min(total, limit)
    disk = os.statvfs("/")
    disk_total = disk.f_blocks * disk.f_frsize
    return {
        "ts": int(time.time()),
        "cpu_count": len(os.sched_getaffinity(0)),
        "cpu_used_pct": _cpu_percent(),
        "mem_total_mib": total >> 20,
        "mem_used_mib": max(used, 0) >> 20,
        "mem_total": total,
        "mem_used": max(used, 0),
        "mem_cache": cached,
        "disk_used": disk_total - disk.f_bavail * disk.f_frsize,
        "disk_total": disk_total,
    }


def _meminfo() -> dict[str, int]:
    found: dict[str, int] = {}
    for line in _read("/proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        number = rest.split()[:1]
        if number and number[0].isdecimal():
            found[name] = int(number[0]) * 1024
    return found


def _memory_limit() -> int | None:
    for path in _LIMITS:
        text = _read(path).strip()
        if text.isdecimal():
            return int(text)
    return None


def _cpu_percent() -> float:
    """Busy share of all processors since the last call."""
    global _last
    ticks = [int(part) for part in _read("/proc/stat").split("\n", 1)[0].split()[1:] if part.isdecimal()]
    if len(ticks) < 5:
        return 0.0
    busy, total = sum(ticks) - ticks[3] - ticks[4], sum(ticks)
    (busy_before, total_before), _last = _last, (busy, total)
    spent = total - total_before
    return round(100 * (busy - busy_before) / spent, 2) if spent > 0 else 0.0


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(64 * 1024)
    except OSError:
        return ""
