"""What every OCI runtime does the same way: records, the main process, its end and the reason, usage, freeing all of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import select
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sandlot.engine.core.errors import EngineError, MachineFailed, NotFound
from sandlot.engine.core.model import Exit, Instance, Isolation, MachineSpec, Usage
from sandlot.engine.node import processes
from sandlot.engine.node.runtimes import cgroups, rootfs
from sandlot.engine.node.runtimes.cgroups import Cgroup

MB = 1 << 20
START_TIMEOUT_S = 60
FREEZE_TIMEOUT_S = 10
LOG_HEAD = 4096
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is written down before a machine is made, and removed after all of it is gone."""

    machine_id: str
    directory: str
    cpu_count: int
    memory_mb: int
    disk_mb: int
    version: str  # of the program that runs it, in its own words
    program: str = ""  # the same by content: a checkpoint is restored by the program that wrote it

    @property
    def place(self) -> Path:
        return Path(self.directory) / "runtime"


class OciDriver(ABC):
    """A runtime that is an OCI program on the host. All it knows of a machine is found by the machine's id."""

    name: str
    isolation: Isolation

    def __init__(self, data_dir: Path, instance: str, *, program: str | None = None) -> None:
        self._program = program  # None: the usual one, from PATH
        self._data_dir = data_dir
        self._instance = instance
        self._parent = f"/sandlot-{instance}"
        self._root = data_dir / "run" / self.name  # the runtime's own state
        self._records = data_dir / "run" / f"{self.name}-machines"  # ours
        self._cache = data_dir / "disks"
        self._stage = rootfs.Stage(instance)
        self._looks: dict[str, tuple[float, int]] = {}  # id -> when the CPU counter was last read, and what it said
        self._stopping: set[str] = set()
        self._clearing: dict[str, asyncio.Task[None]] = {}

    @abstractmethod
    async def check(self) -> None: ...

    @abstractmethod
    async def _version(self) -> str: ...

    async def program(self) -> str:
        """What runs new machines, by content; empty where it does not matter."""
        return ""

    def keep_programs(self, needed: Collection[str]) -> None:
        """None are kept where it does not matter what runs a machine."""
        return None

    @abstractmethod
    async def _launch(self, spec: MachineSpec, place: Path) -> None:
        """Make the machine in `place` and run it. On failure, `_free` takes away what was made."""

    @abstractmethod
    def _forget(self, machine_id: str) -> None:
        """Remove what the runtime itself wrote down about a machine."""

    @abstractmethod
    def _known(self) -> set[str]:
        """Ids that the runtime itself has something written down about."""

    @abstractmethod
    def _disk_file(self, record: Record) -> Path: ...

    async def start(self, spec: MachineSpec) -> Instance:
        _check_id(spec.machine_id)
        if self._read(spec.machine_id) is not None or self._cgroup(spec.machine_id).exists():
            raise MachineFailed(f"sandbox {spec.machine_id} already has a machine on this host; stop it first")
        rootfs.check_layers(spec)
        record = Record(
            machine_id=spec.machine_id,
            directory=str(spec.directory),
            cpu_count=spec.resources.cpu_count,
            memory_mb=spec.resources.memory_mb,
            disk_mb=spec.resources.disk_mb,
            version=await self._version(),
            program=spec.program or await self.program(),
        )
        try:
            self._write(record)
            record.place.mkdir(parents=True)
            await self._launch(spec, record.place)
            cgroups.weigh(self._parent)  # the first machine made it
            self._look(spec.machine_id)
            return self._instance_of(record)
        except BaseException as error:
            reason = self._log_head(record) if isinstance(error, Exception) else ""
            await processes.to_the_end(self._free(spec.machine_id, record))
            if isinstance(error, EngineError | OSError):
                raise self._failed(spec, error, reason) from error
            raise

    async def stop(self, instance: Instance, *, grace: timedelta = timedelta(0)) -> None:
        machine_id = _check_id(instance.machine_id)
        record = self._read(machine_id) or _record_of(instance)
        self._stopping.add(machine_id)
        try:
            if grace:
                await self._ask_to_end(machine_id, grace)
            await processes.to_the_end(self._free(machine_id, record))
        finally:
            self._stopping.discard(machine_id)

    async def alive(self, instance: Instance) -> bool:
        pidfd = self._main_process(instance.machine_id)
        if pidfd is None:
            return False
        try:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            return not poll.poll(0)
        finally:
            os.close(pidfd)

    async def wait(self, instance: Instance) -> Exit:
        pidfd = self._main_process(instance.machine_id)
        if pidfd is not None:
            try:
                await processes.readable(pidfd)
            finally:
                os.close(pidfd)
        stopping = instance.machine_id in self._stopping
        return Exit(reason="stopped", expected=True) if stopping else Exit(reason=self._why(instance.machine_id))

    def _why(self, machine_id: str) -> str:
        """Counters of the kernel tell why; they are there until the machine's group is removed."""
        cgroup = self._cgroup(machine_id)
        if cgroup.oom_kills():
            return "out of memory"
        if cgroup.refused_forks():
            return "too many processes"
        return "exited"

    async def limits_hit(self, instance: Instance) -> Sequence[str]:
        """What the kernel refused this machine so far, for its owner to read: programs inside often cannot tell."""
        cgroup = self._cgroup(instance.machine_id)
        told = []
        if kills := cgroup.oom_kills():
            told.append(f"processes were killed because the sandbox was out of memory ({kills} so far)")
        if refused := cgroup.refused_forks():
            told.append(f"new processes were refused because the sandbox has too many ({refused} so far)")
        return told

    async def instances(self) -> Sequence[Instance]:
        ids = {path.stem for path in _entries(self._records) if path.suffix == ".json"} | self._known()
        others = {path.stem for path in self._records.parent.glob("*-machines/*.json")}
        ids |= cgroups.names(self._parent) - others  # a group that no runtime wrote down: anybody may free it
        found = []
        for machine_id in sorted(filter(_ID.fullmatch, ids)):
            record = self._read(machine_id)
            found.append(self._instance_of(record) if record else Instance(machine_id=machine_id, runtime=self.name))
        return found

    async def usage(self, instance: Instance) -> Usage:
        record = self._read(instance.machine_id)
        if record is None or not await self.alive(instance):
            raise NotFound(f"sandbox {instance.machine_id} has no machine that runs on this host")
        try:
            cpu_pct, sample = self._look(instance.machine_id, record.cpu_count)
            disk_used = self._disk_used(record)
        except OSError as error:
            raise NotFound(f"the machine of sandbox {instance.machine_id} is going away") from error
        return Usage(
            at=datetime.now(UTC),
            cpu_count=record.cpu_count,
            cpu_used_pct=cpu_pct,
            mem_used=sample.mem_used,
            mem_total=record.memory_mb * MB,
            mem_cache=sample.mem_cache,
            disk_used=disk_used,
            disk_total=record.disk_mb * MB,
        )

    def _disk_used(self, record: Record) -> int:
        return self._disk_file(record).stat().st_blocks * 512

    async def close(self) -> None:
        """Take away what only running machines need: the empty parent of their groups, the stage. Both come back when needed."""
        if self._clearing:
            await asyncio.wait(self._clearing.values())
        cgroups.remove_if_empty(self._parent)
        self._stage.close()

    def _look(self, machine_id: str, cpu_count: int = 1) -> tuple[float, cgroups.Sample]:
        """Read the counters, and the share of its CPUs that the machine used since the last look."""
        sample, now = self._cgroup(machine_id).sample(), time.monotonic()
        then, cpu_ns = self._looks.get(machine_id, (now, sample.cpu_ns))
        self._looks[machine_id] = (now, sample.cpu_ns)
        elapsed_ns = (now - then) * 1e9 * cpu_count
        return (min(100.0, 100 * (sample.cpu_ns - cpu_ns) / elapsed_ns) if elapsed_ns > 0 else 0.0), sample

    async def freeze(self, instance: Instance) -> None:
        cgroup = self._cgroup(instance.machine_id)
        deadline = time.monotonic() + FREEZE_TIMEOUT_S
        try:
            cgroup.freeze()
            while not cgroup.is_frozen():
                if time.monotonic() > deadline:
                    cgroup.thaw()
                    raise MachineFailed(f"sandbox {instance.machine_id} did not stand still in {FREEZE_TIMEOUT_S} s")
                await asyncio.sleep(0.001)
        except OSError as error:
            raise NotFound(f"sandbox {instance.machine_id} has no machine to freeze") from error

    async def thaw(self, instance: Instance) -> None:
        try:
            self._cgroup(instance.machine_id).thaw()
        except OSError as error:
            raise NotFound(f"sandbox {instance.machine_id} has no machine to thaw") from error

    async def _run(self, *argv: str) -> None:
        """Run the runtime to its end, even when cancelled: half a machine is harder to take away than a whole one."""
        await processes.to_the_end(processes.run(*argv, stdio=subprocess.DEVNULL, timeout_s=START_TIMEOUT_S))

    async def _ask_to_end(self, machine_id: str, grace: timedelta) -> None:
        pidfd = self._main_process(machine_id)
        if pidfd is None:
            return
        try:
            with contextlib.suppress(OSError):
                self._cgroup(machine_id).thaw()
            with contextlib.suppress(ProcessLookupError, TimeoutError):
                await self._terminate(machine_id, pidfd)
                await asyncio.wait_for(processes.readable(pidfd), grace.total_seconds())
        finally:
            os.close(pidfd)

    async def _terminate(self, machine_id: str, pidfd: int) -> None:
        """Send SIGTERM to the guest's first process."""
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)

    async def _free(self, machine_id: str, record: Record | None) -> None:
        """End the machine and take away everything it has; the record goes last, so that a crash midway is found."""
        cgroup = self._cgroup(machine_id)
        await cgroup.kill()
        self._clear_stage(machine_id)
        await self._stage_cleared(machine_id)
        await cgroup.remove()
        self._forget(machine_id)
        if record is not None:
            await asyncio.to_thread(_remove, record.place)
        self._looks.pop(machine_id, None)
        for suffix in (".pid", ".json"):
            (self._records / f"{machine_id}{suffix}").unlink(missing_ok=True)

    def _clear_stage(self, machine_id: str) -> None:
        """Take the machine's mounts out of the server's own view, beside other work: the kernel takes its time for it."""
        before = self._clearing.get(machine_id)

        async def clear() -> None:
            if before is not None:
                await asyncio.wait({before})
            await asyncio.to_thread(self._stage.clear, machine_id)

        task = self._clearing[machine_id] = asyncio.create_task(clear())
        task.add_done_callback(lambda done: self._stage_seen(machine_id, done))

    def _stage_seen(self, machine_id: str, done: asyncio.Task[None]) -> None:
        if self._clearing.get(machine_id) is done:
            del self._clearing[machine_id]
        if not done.cancelled() and (error := done.exception()) is not None:
            log.warning("mounts of sandbox %s are still in the server's view: %s", machine_id, error)

    async def _stage_cleared(self, machine_id: str) -> None:
        task = self._clearing.get(machine_id)
        if task is not None:
            await asyncio.wait({task})
            await task

    def _main_process(self, machine_id: str) -> int | None:
        """A pidfd of the machine's main process, or None. The pid comes from the runtime and must be in the machine's group."""
        try:
            pid = int(self._pid_file(machine_id).read_text())
            pidfd = os.pidfd_open(pid) if pid > 1 else None
        except (OSError, ValueError):
            return None
        if pidfd is not None and not self._cgroup(machine_id).holds(pid):
            os.close(pidfd)
            return None
        return pidfd

    def _pid_file(self, machine_id: str) -> Path:
        return self._records / f"{_check_id(machine_id)}.pid"

    def _cgroup(self, machine_id: str) -> Cgroup:
        return Cgroup(f"{self._parent}/{_check_id(machine_id)}")

    def _write(self, record: Record) -> None:
        for directory in (self._root, self._records):
            directory.mkdir(parents=True, exist_ok=True)
        draft = self._records / f".{record.machine_id}"
        draft.write_text(json.dumps(asdict(record)))
        draft.rename(self._records / f"{record.machine_id}.json")

    def _read(self, machine_id: str) -> Record | None:
        try:
            return Record(**json.loads((self._records / f"{_check_id(machine_id)}.json").read_text()))
        except FileNotFoundError:
            return None

    def _record_of(self, machine_id: str) -> Record:
        record = self._read(machine_id)
        if record is None:
            raise NotFound(f"sandbox {machine_id} has no machine on this host")
        return record

    def _instance_of(self, record: Record) -> Instance:
        return Instance(machine_id=record.machine_id, runtime=self.name, state=asdict(record))

    def _log_head(self, record: Record) -> str:
        try:
            with (record.place / "log").open("rb") as file:
                return file.read(LOG_HEAD).decode(errors="replace").strip()
        except OSError:
            return ""

    def _failed(self, spec: MachineSpec, error: Exception, reason: str) -> MachineFailed:
        """What the caller reads holds no host path; the whole story goes to the log."""
        log.warning("could not start %s with %s: %s\n%s", spec.machine_id, self.name, error, reason)
        if isinstance(error, MachineFailed):
            return error
        said = _first_message(reason) or str(error)
        told = re.sub(r"(?<![\w.])/(?:[^\s:'\"`/]+/)+[^\s:'\"`]*", "…", said)
        return MachineFailed(f"runtime {self.name!r} could not start sandbox {spec.machine_id}: {told[:500]}")


def _check_id(machine_id: str) -> str:
    if not _ID.fullmatch(machine_id):
        raise MachineFailed(f"{machine_id!r} cannot name a machine; use letters, digits, '-' and '_'")
    return machine_id


def _record_of(instance: Instance) -> Record | None:
    try:
        return Record(**{name: instance.state[name] for name in Record.__dataclass_fields__})
    except KeyError:
        return None


def _first_message(text: str) -> str:
    """The first thing a runtime complained about: runsc writes JSON objects, crun and runc plain lines."""
    line = text.splitlines()[0] if text else ""
    try:
        return str(json.JSONDecoder().raw_decode(line)[0]["msg"])
    except (ValueError, KeyError, TypeError):
        return line


def _entries(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.is_dir() else []


def _remove(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place)
