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
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sandlot.engine.core.errors import EngineError, MachineFailed, NotFound
from sandlot.engine.core.model import Exit, Instance, Isolation, MachineSpec, Usage
from sandlot.engine.node import processes
from sandlot.engine.node.runtimes import cgroups, rootfs
from sandlot.engine.node.runtimes.cgroups import Cgroup, CpuMeter
from sandlot.engine.node.runtimes.records import ID, Record, RecordFiles, check_id, record_of
from sandlot.engine.node.runtimes.stage_cleaner import StageCleaner

MB = 1 << 20
START_TIMEOUT_S = 60
FREEZE_TIMEOUT_S = 10
LOG_HEAD = 4096
# A machine's processes on the host keep what they were started with: nothing of the server's own settings and secrets.
ENVIRONMENT = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}
log = logging.getLogger(__name__)


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
        self._records = RecordFiles(data_dir / "run" / f"{self.name}-machines")
        self._cache = data_dir / "disks"
        self._stage = rootfs.Stage(instance)
        self._stage_cleaner = StageCleaner(self._stage)
        self._cpu = CpuMeter()
        self._stopping: set[str] = set()

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
    async def _launch(self, spec: MachineSpec, bundle: Path) -> None:
        """Make the machine in `bundle` and run it. On failure, `_free` takes away what was made."""

    @abstractmethod
    def _forget(self, machine_id: str) -> None:
        """Remove what the runtime itself wrote down about a machine."""

    @abstractmethod
    def _known(self) -> set[str]:
        """Ids that the runtime itself has something written down about."""

    @abstractmethod
    def _disk_file(self, record: Record) -> Path: ...

    async def start(self, spec: MachineSpec) -> Instance:
        check_id(spec.machine_id)
        if self._records.find(spec.machine_id) is not None or self._cgroup(spec.machine_id).exists():
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
            self._root.mkdir(parents=True, exist_ok=True)
            self._records.write(record)
            record.bundle.mkdir(parents=True)
            await self._launch(spec, record.bundle)
            cgroups.weigh(self._parent)  # the first machine made it
            self._cpu.look(self._cgroup(spec.machine_id))
            return _instance_of(self.name, record)
        except BaseException as error:
            reason = _log_head(record) if isinstance(error, Exception) else ""
            await processes.to_the_end(self._free(spec.machine_id, record))
            if isinstance(error, EngineError | OSError):
                raise _start_failure(self.name, spec.machine_id, error, reason) from error
            raise

    async def stop(self, instance: Instance, *, grace: timedelta = timedelta(0)) -> None:
        machine_id = check_id(instance.machine_id)
        record = self._records.find(machine_id) or record_of(instance)
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
        return (
            Exit(reason="stopped", expected=True)
            if stopping
            else Exit(reason=_exit_reason(self._cgroup(instance.machine_id)))
        )

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
        ids = self._records.ids() | self._known()
        ids |= (
            cgroups.names(self._parent) - self._records.ids_of_all_drivers()
        )  # a group that no runtime wrote down: anybody may free it
        found = []
        for machine_id in sorted(filter(ID.fullmatch, ids)):
            record = self._records.find(machine_id)
            found.append(
                _instance_of(self.name, record) if record else Instance(machine_id=machine_id, runtime=self.name)
            )
        return found

    async def usage(self, instance: Instance) -> Usage:
        record = self._records.find(instance.machine_id)
        if record is None or not await self.alive(instance):
            raise NotFound(f"sandbox {instance.machine_id} has no machine that runs on this host")
        try:
            cpu_pct, sample = self._cpu.look(self._cgroup(instance.machine_id), record.cpu_count)
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
        await self._stage_cleaner.close()
        cgroups.remove_if_empty(self._parent)

    async def freeze(self, instance: Instance) -> None:
        cgroup = self._cgroup(instance.machine_id)
        deadline = time.monotonic() + FREEZE_TIMEOUT_S
        try:
            cgroup.freeze()
            while not cgroup.is_frozen():
                if time.monotonic() > deadline:
                    cgroup.thaw()
                    raise MachineFailed(
                        f"sandbox {instance.machine_id} could not be frozen within {FREEZE_TIMEOUT_S} s"
                    )
                await asyncio.sleep(0.001)
        except OSError as error:
            raise NotFound(f"sandbox {instance.machine_id} has no machine to freeze") from error

    async def thaw(self, instance: Instance) -> None:
        try:
            self._cgroup(instance.machine_id).thaw()
        except OSError as error:
            raise NotFound(f"sandbox {instance.machine_id} has no machine to thaw") from error

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
        self._stage_cleaner.begin(machine_id)
        await self._stage_cleaner.finish(machine_id)
        await cgroup.remove()
        self._forget(machine_id)
        if record is not None:
            await asyncio.to_thread(_remove, record.bundle)
        self._cpu.forget(cgroup)
        self._records.remove(machine_id)

    def _main_process(self, machine_id: str) -> int | None:
        """A pidfd of the machine's main process, or None. The pid comes from the runtime and must be in the machine's group."""
        try:
            pid = int(self._records.pid_file(machine_id).read_text())
            pidfd = os.pidfd_open(pid) if pid > 1 else None
        except (OSError, ValueError):
            return None
        if pidfd is not None and not self._cgroup(machine_id).holds(pid):
            os.close(pidfd)
            return None
        return pidfd

    def _cgroup(self, machine_id: str) -> Cgroup:
        return Cgroup(f"{self._parent}/{check_id(machine_id)}")


def _exit_reason(cgroup: Cgroup) -> str:
    """Counters of the kernel tell why; they are there until the machine's group is removed."""
    if cgroup.oom_kills():
        return "out of memory"
    if cgroup.refused_forks():
        return "too many processes"
    return "exited"


def _instance_of(runtime: str, record: Record) -> Instance:
    return Instance(machine_id=record.machine_id, runtime=runtime, state=asdict(record))


async def run_program(*argv: str) -> None:
    """Run the runtime to its end, even when cancelled: half a machine is harder to remove than a whole one."""
    await processes.to_the_end(
        processes.run(*argv, stdio=subprocess.DEVNULL, timeout_s=START_TIMEOUT_S, env=ENVIRONMENT)
    )


def _log_head(record: Record) -> str:
    try:
        with (record.bundle / "log").open("rb") as file:
            return file.read(LOG_HEAD).decode(errors="replace").strip()
    except OSError:
        return ""


def _start_failure(runtime: str, machine_id: str, error: Exception, reason: str) -> MachineFailed:
    """What the caller reads holds no host path; the whole story goes to the log."""
    log.warning("could not start %s with %s: %s\n%s", machine_id, runtime, error, reason)
    if isinstance(error, MachineFailed):
        return error
    said = _first_message(reason) or str(error)
    shown = re.sub(r"(?<![\w.])/(?:[^\s:'\"`/]+/)+[^\s:'\"`]*", "…", said)
    return MachineFailed(f"runtime {runtime!r} could not start sandbox {machine_id}: {shown[:500]}")


def _first_message(text: str) -> str:
    """The first thing a runtime complained about: runsc writes JSON objects, crun and runc plain lines."""
    line = text.splitlines()[0] if text else ""
    try:
        return str(json.JSONDecoder().raw_decode(line)[0]["msg"])
    except (ValueError, KeyError, TypeError):
        return line


def _remove(bundle: Path) -> None:
    if bundle.is_dir():
        shutil.rmtree(bundle)
