"""What can be known from inside about the sandbox's memory, and a guard for where running out of it would end everything."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

log = logging.getLogger(__name__)

EVENTS = (Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"), Path("/proc/vmstat"))
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
MEMINFO = Path("/proc/meminfo")
PROCESSES = Path("/proc")
PAGE = 4096
KERNEL = 96 << 20  # what a kernel needs to start
TICK_S = 0.02  # a cell can fill a gigabyte in a second
RELIEF_S = 0.5  # until the memory of one that went is free again
RESERVE = 0.1  # of all memory; below it somebody has to go
SHARE = 0.25  # of all memory: who uses less is not the reason


class Victim(Protocol):
    @property
    def pid(self) -> int | None: ...

    def end_for_memory(self) -> None: ...


def kills() -> int | None:
    """How often something was killed for memory, in the narrowest scope that can be seen; None where nobody counts."""
    for path in EVENTS:
        for line in _read(path).splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.strip().isdigit():
                return int(count)
    return None


def limit_mb() -> int | None:
    """How much the sandbox may use, where that can be seen: /proc/meminfo of a container speaks of the host."""
    known = [int(text) for path in LIMITS if (text := _read(path).strip()).isdigit()]
    if not known and kills() is None:
        known = [size for size in [_meminfo().get("MemTotal")] if size]
    return min(known) >> 20 if known else None


def has_room() -> bool:
    """Whether one more kernel can start. Where running out is survivable, trying is right."""
    numbers = _meminfo()
    total = numbers.get("MemTotal", 0)
    return kills() is not None or numbers.get("MemAvailable", total) > RESERVE * total + KERNEL


class Guard:
    """Where the host's kernel cannot pick one process (gVisor: all of the sandbox is one), memory that runs out ends the
    whole sandbox. The guard ends the largest kernel that runs a cell before that."""

    def __init__(self) -> None:
        self._is_needed = kills() is None
        self._busy: list[Victim] = []
        self._watch: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def watching(self, victim: Victim) -> Iterator[None]:
        """While it runs a cell. Between cells nothing ticks: idle sandboxes cost nothing."""
        self._busy.append(victim)
        if self._is_needed and self._watch is None:
            self._watch = asyncio.create_task(self._tick())
        try:
            yield
        finally:
            self._busy.remove(victim)
            if not self._busy and self._watch is not None:
                self._watch.cancel()
                self._watch = None

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            if self._look(self._busy):
                await asyncio.sleep(RELIEF_S)

    def _look(self, busy: Sequence[Victim]) -> bool:
        """Whether one had to go."""
        numbers = _meminfo()
        total = numbers.get("MemTotal", 0)
        if not total or numbers.get("MemAvailable", total) > RESERVE * total:
            return False
        sizes = _sessions()
        largest = max(busy, key=lambda victim: sizes.get(victim.pid or 0, 0))
        size = sizes.get(largest.pid or 0, 0)
        if size < SHARE * total:
            return False
        log.warning("memory runs out; a kernel that uses %s MiB is ended", size >> 20)
        largest.end_for_memory()
        return True


def _sessions() -> dict[int, int]:
    """Resident bytes by session: a kernel leads one, and what it starts stays in it unless it leaves."""
    sizes: dict[int, int] = {}
    for entry in PROCESSES.iterdir():
        if entry.name.isdigit():
            # After the name, which is in parentheses and may hold anything: state, parent, group, session, ...
            fields = _read(entry / "stat").rpartition(")")[2].split()
            resident = _read(entry / "statm").split()
            if len(fields) > 3 and len(resident) > 1:
                sizes[int(fields[3])] = sizes.get(int(fields[3]), 0) + int(resident[1]) * PAGE
    return sizes


def _meminfo() -> dict[str, int]:
    found = {}
    for line in _read(MEMINFO).splitlines():
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
