"""The `container` runtime: machines on the host's kernel, behind namespaces, a user namespace and a system call filter."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import secrets
import shutil
import socket
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from sandlot.engine.core.errors import EngineError, MachineFailed, NotFound, Unavailable
from sandlot.engine.core.model import Instance, Isolation, MachineSpec
from sandlot.engine.node import processes
from sandlot.engine.node.runtimes import disks, idmap, oci, rootfs, seccomp
from sandlot.engine.node.runtimes.driver import OciDriver, run_program
from sandlot.engine.node.runtimes.idmap import IdRange, UserNamespaces
from sandlot.engine.node.runtimes.records import Record
from sandlot.spans import span

PROGRAMS = ("crun", "runc")  # the first one found; crun starts in half the time
IMAGE = "disk.img"
CHECK_DISK_MB = 16
CLONE_NEWUTS = 0x04000000
_libc = ctypes.CDLL(None, use_errno=True)


class Container(OciDriver):
    name = "container"
    isolation = Isolation.NAMESPACES
    captures_memory = False  # memory is kept by freezing, for as long as the host is up

    def __init__(self, data_dir: Path, instance: str, *, program: str | None = None) -> None:
        super().__init__(data_dir, instance, program=program)
        self._namespaces = UserNamespaces(instance)
        self._versions: dict[str, str] = {}

    async def check(self) -> None:
        """Put a root filesystem together for real: versions and modules of kernels tell less than one attempt."""
        await self._version()
        name = f".check-{secrets.token_hex(4)}"
        scratch = self._data_dir / "run" / name
        scratch.mkdir(parents=True)
        try:
            await disks.make(scratch / IMAGE, CHECK_DISK_MB, self._cache)
            ids = IdRange.of(self._instance, 0)
            userns = await self._namespaces.get(ids)
            root = rootfs.mount_writable(self._stage.make(name), (scratch,), scratch / IMAGE, ids, userns)
            with idmap.acting_as_root_of(ids):
                (root / "written").touch()
        except (EngineError, OSError) as error:
            raise Unavailable(
                f"runtime 'container' does not work on this host: {error}. It needs root, Linux 5.19 or later, and the "
                "modules loop, ext4 and overlay: try `modprobe -a loop ext4 overlay`"
            ) from error
        finally:
            self._stage.clear(name)
            shutil.rmtree(scratch)

    def _find(self) -> str:
        for name in (self._program,) if self._program else PROGRAMS:
            if path := shutil.which(name):
                return path
        wanted = self._program or "crun"
        raise Unavailable(f"runtime 'container' needs {wanted!r}, which is not on this host: apt-get install crun")

    async def _version(self) -> str:
        program = self._find()
        if program not in self._versions:
            said = (await processes.run(program, "--version")).stdout.decode(errors="replace")
            self._versions[program] = said.splitlines()[0].strip()
        return self._versions[program]

    async def _launch(self, spec: MachineSpec, bundle: Path) -> None:
        ids = IdRange.of(self._instance, spec.slot.index)
        with span("user namespace"):
            userns = await self._namespaces.get(ids)
        rootfs.write_names(spec, bundle / "names")
        if spec.checkpoint is None:
            with span("disk"):
                await disks.make(bundle / IMAGE, spec.resources.disk_mb, self._cache)
        else:
            await disks.released(str(bundle / IMAGE))  # by the machine that had it before the pause
            await disks.take_over(spec.checkpoint / IMAGE, bundle / IMAGE, in_place=spec.owns_checkpoint)
        layers = (*spec.layers, bundle / "names")
        stage = self._stage.make(spec.machine_id)
        with span("mounts"):
            root = await processes.to_the_end(
                asyncio.to_thread(rootfs.mount_writable, stage, layers, bundle / IMAGE, ids, userns)
            )
        guest = rootfs.show_readonly(spec.guest, stage / "guest", userns)
        (bundle / "config.json").write_text(json.dumps(self._config(spec, root, guest, ids)))
        with span("crun"):
            await run_program(
                self._find(), "--root", str(self._root), "--log", str(bundle / "log"),
                "run", "--detach", "--bundle", str(bundle), "--pid-file", str(self._records.pid_file(spec.machine_id)), spec.machine_id,
            )  # fmt: skip
        self._namespaces.get_ahead(spec.slot.index)
        self._stage_cleaner.begin(
            spec.machine_id
        )  # the machine holds its own copies: when it ends, they and the loop device go with it

    async def close(self) -> None:
        await self._namespaces.close()
        await super().close()

    async def rename(self, instance: Instance, hostname: str) -> None:
        """From outside: inside, nobody has the right to."""
        pidfd = self._main_process(instance.machine_id)
        if pidfd is None:
            raise NotFound(f"sandbox {hostname} has no machine that runs")
        try:
            await asyncio.to_thread(_set_hostname, pidfd, hostname)
        except OSError as error:
            raise MachineFailed(f"the host name of sandbox {hostname} could not be set: {error.strerror}") from error
        finally:
            os.close(pidfd)

    async def capture(self, instance: Instance, into: Path, *, final: bool) -> None:
        """The files, as they are at one moment: the machine is frozen while its disk is copied, and longer if it was before."""
        record = self._records.get(instance.machine_id)
        was_frozen = self._cgroup(instance.machine_id).is_frozen()
        await self.freeze(instance)
        try:
            into.mkdir(parents=True)
            await asyncio.to_thread(self._flush, instance.machine_id)
            if final:
                os.link(record.bundle / IMAGE, into / IMAGE)
            else:
                await asyncio.to_thread(disks.copy_sparse, record.bundle / IMAGE, into / IMAGE)
        except BaseException as error:
            shutil.rmtree(into, ignore_errors=True)
            if isinstance(error, OSError):
                raise MachineFailed(
                    f"the files of sandbox {instance.machine_id} could not be written: {error.strerror}; it goes on running"
                ) from error
            raise
        finally:
            if not was_frozen:
                await processes.to_the_end(self.thaw(instance))

    def keep_disk(self, instance: Instance, into: Path) -> None:
        rootfs.keep_disk(self._records.get(instance.machine_id).bundle / IMAGE, into)

    def written(self, state: Path, machine_id: str) -> AbstractAsyncContextManager[Path]:
        return rootfs.written(self._stage, state / IMAGE, machine_id)

    def _flush(self, machine_id: str) -> None:
        """Have the kernel write the machine's disk out. The way in is the main process's root, opened as a directory only."""
        pidfd = self._main_process(machine_id)
        if pidfd is None:
            raise NotFound(f"sandbox {machine_id} has no machine on this host")
        try:
            pid = int(self._records.pid_file(machine_id).read_text())
            root = os.open(f"/proc/{pid}/root", os.O_RDONLY | os.O_DIRECTORY)
            try:
                disks.flush(root)
            finally:
                os.close(root)
        finally:
            os.close(pidfd)

    def _config(self, spec: MachineSpec, root: Path, guest: Path, ids: IdRange) -> dict[str, object]:
        limits = oci.limits(spec.resources, pids=spec.resources.pids)
        config = oci.config(spec, root, guest, f"{self._parent}/{spec.machine_id}", limits)
        oci.map_ids(config, ids)
        oci.harden(config, seccomp.profile())
        oci.say_boot_id(config, spec, spec.directory / "runtime")
        return config

    def _forget(self, machine_id: str) -> None:
        state = self._root / machine_id
        if state.is_dir():
            shutil.rmtree(state)

    def _known(self) -> set[str]:
        return {path.name for path in self._root.iterdir()} if self._root.is_dir() else set()

    def _disk_used(self, record: Record) -> int:
        """The machine's file system knows, too, what the kernel has not written to the image yet."""
        on_disk, pidfd = super()._disk_used(record), self._main_process(record.machine_id)
        if pidfd is None:
            return on_disk
        try:
            pid = int(self._records.pid_file(record.machine_id).read_text())
            seen = os.statvfs(f"/proc/{pid}/root")
        finally:
            os.close(pidfd)
        return max(on_disk, (seen.f_blocks - seen.f_bfree) * seen.f_frsize)

    def _disk_file(self, record: Record) -> Path:
        return record.bundle / IMAGE


def _set_hostname(pidfd: int, hostname: str) -> None:
    """Enter the machine's UTS namespace with this thread, and leave it again."""
    own = os.open("/proc/thread-self/ns/uts", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _enter_uts(pidfd)
        try:
            socket.sethostname(hostname)
        finally:
            _enter_uts(own)
    finally:
        os.close(own)


def _enter_uts(fd: int) -> None:
    if _libc.setns(fd, CLONE_NEWUTS) != 0:
        raise OSError(ctypes.get_errno(), "cannot enter the UTS namespace")
