"""The `gvisor` runtime: machines whose system calls are served by runsc's user-space kernel, never by the host's."""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import json
import logging
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Collection
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from sandlot.engine.core.errors import MachineFailed, Unavailable
from sandlot.engine.core.model import Instance, Isolation, MachineSpec, Slot
from sandlot.engine.node import processes
from sandlot.engine.node.runtimes import disks, oci, rootfs
from sandlot.engine.node.runtimes.driver import ENVIRONMENT, OciDriver, run_program
from sandlot.engine.node.runtimes.idmap import IdRange, UserNamespaces
from sandlot.engine.node.runtimes.programs import Programs
from sandlot.engine.node.runtimes.records import Record
from sandlot.spans import span

IMAGE = "disk.img"
MEMORY = "memory"
CAPTURE_TIMEOUT_S = 300
PLATFORM = "--platform=systrap"
# A guest's thread is not one thread of the host: the kernel in user space needs its own, and two per guest process.
HOST_TASKS_PER_PID = 3
HOST_TASKS = 512
CLONE_NEWNET, SIOCGIFADDR = 0x40000000, 0x8915
_libc = ctypes.CDLL(None, use_errno=True)


log = logging.getLogger(__name__)


class GVisor(OciDriver):
    name = "gvisor"
    isolation = Isolation.SENTRY
    captures_memory = True

    def __init__(self, data_dir: Path, instance: str, *, program: str | None = None) -> None:
        super().__init__(data_dir, instance, program=program)
        self._runsc = program or "runsc"
        self._namespaces = UserNamespaces(instance)
        self._programs = Programs(data_dir / "programs", "runsc")
        self._said_version: str | None = None

    async def check(self) -> None:
        """Run one program under runsc for real: what keeps it from working (ptrace limits, old kernels) shows only then."""
        await self._version()
        if not Path("/dev/loop-control").exists():
            raise Unavailable("runtime 'gvisor' needs the loop module in the host's kernel: modprobe loop")
        with tempfile.TemporaryDirectory(prefix="sandlot-check-") as scratch:
            flags = ("--root", scratch, PLATFORM, "--network=none", "--ignore-cgroups")
            tried = await processes.run(
                self._runsc, *flags, "do", "/bin/true", check=False, timeout_s=30, env=ENVIRONMENT
            )
        if tried.status != 0:
            said = (tried.stderr or tried.stdout).decode(errors="replace").strip()[-300:]
            raise Unavailable(f"runtime 'gvisor' does not work on this host: {self._runsc} says: {said}")

    async def _version(self) -> str:
        if self._said_version is None:
            if shutil.which(self._runsc) is None:
                raise Unavailable(
                    f"runtime 'gvisor' needs {self._runsc!r}, which is not on this host: apt-get install runsc"
                )
            said = (await processes.run(self._runsc, "--version")).stdout.decode(errors="replace")
            self._said_version = said.splitlines()[0].strip()
        return self._said_version

    async def program(self) -> str:
        return (await asyncio.to_thread(self._programs.keep, self._runsc))[0]

    def keep_programs(self, needed: Collection[str]) -> None:
        self._programs.forget_all_but(needed)

    async def _launch(self, spec: MachineSpec, bundle: Path) -> None:
        if spec.checkpoint is None:
            rootfs.write_names(spec, bundle / "names")
            rootfs.stand_in_for_sudo(spec, bundle / "names")
            begin: tuple[str, ...] = ("run",)
        else:
            rootfs.copy_names(spec.checkpoint / "names", bundle / "names")
            begin = ("restore", "--image-path", str(spec.checkpoint / MEMORY))
        with span("disk"):
            await disks.make(bundle / IMAGE, spec.resources.disk_mb, self._cache)
        stage = self._stage.make(spec.machine_id)
        ids = IdRange.of(self._instance, spec.slot.index)
        with span("user namespace"):
            userns = await self._namespaces.get(ids)
        with span("mounts"):
            root, guest = await processes.to_the_end(asyncio.to_thread(self._mount, spec, bundle, stage, ids, userns))
        (bundle / "config.json").write_text(json.dumps(self._config(spec, root, guest, stage, ids)))
        with span("address"):
            await address(spec.slot)
        with span("runsc"):
            await run_program(
                *self._command(self._records.get(spec.machine_id), writes_layer=spec.writes_layer), *begin, "--detach",
                "--bundle", str(bundle), "--pid-file", str(self._records.pid_file(spec.machine_id)), spec.machine_id,
            )  # fmt: skip
        self._namespaces.get_ahead(spec.slot.index)
        self._stage_cleaner.begin(spec.machine_id)  # the machine's processes hold their own copies

    async def capture(self, instance: Instance, into: Path, *, final: bool) -> None:
        """Memory and files in one image: what the guest changed is part of runsc's own state."""
        record = self._records.get(instance.machine_id)
        try:
            (into / MEMORY).mkdir(parents=True)
            rootfs.copy_names(record.bundle / "names", into / "names")
            await processes.to_the_end(
                processes.run(
                    *self._command(record),
                    "checkpoint",
                    "--leave-running",
                    "--compression=none",
                    "--image-path",
                    str(into / MEMORY),
                    instance.machine_id,
                    timeout_s=CAPTURE_TIMEOUT_S,
                    env=ENVIRONMENT,
                )
            )
        except BaseException as error:
            shutil.rmtree(into, ignore_errors=True)
            if isinstance(error, processes.CommandFailed | OSError):
                log.warning("could not capture sandbox %s: %s", instance.machine_id, error)
                raise MachineFailed(
                    f"the state of sandbox {instance.machine_id} could not be written: {_reason(error)}; it goes on running"
                ) from error
            raise

    def keep_disk(self, instance: Instance, into: Path) -> None:
        rootfs.keep_disk(self._records.get(instance.machine_id).bundle / IMAGE, into)

    def written(self, state: Path, machine_id: str) -> AbstractAsyncContextManager[Path]:
        return rootfs.written(self._stage, state / IMAGE, machine_id)

    def _mount(self, spec: MachineSpec, bundle: Path, stage: Path, ids: IdRange, userns: int) -> tuple[Path, Path]:
        layers = (*spec.layers, bundle / "names")
        if spec.writes_layer:
            root = rootfs.mount_writable(stage, layers, bundle / IMAGE, ids, userns)
        else:
            root = rootfs.mount_readonly(stage, layers, userns)
            disks.mount(bundle / IMAGE, rootfs.directory(stage / "disk"))
        return root, rootfs.show_readonly(spec.guest, stage / "guest", userns)

    def _command(self, record: Record, *, writes_layer: bool = False) -> tuple[str, ...]:
        """The program and its flags are part of what a checkpoint depends on: run and restore must use the same.

        What is written goes into a file of runsc's own, which is fast; where a layer is to be made of it, into the host's overlay.
        """
        store = self._stage.bundle(record.machine_id) / "disk" / disks.UPPER
        overlay = "none" if writes_layer else f"root:dir={store}"
        return (
            str(self._programs.path(record.program)), "--root", str(self._root), "--log", str(record.bundle / "log"), PLATFORM,
            "--network=sandbox", "--net-raw", "--net-disconnect-ok", "--host-uds=none", "--file-access=exclusive",
            "--file-access-mounts=exclusive", f"--overlay2={overlay}", "--cpu-num-from-quota",
        )  # fmt: skip

    def _config(self, spec: MachineSpec, root: Path, guest: Path, stage: Path, ids: IdRange) -> dict[str, object]:
        limits = oci.limits(spec.resources, pids=HOST_TASKS + HOST_TASKS_PER_PID * spec.resources.pids)
        cgroup = f"{self._parent}/{spec.machine_id}"
        config = oci.config(spec, root, guest, cgroup, limits)
        oci.map_ids(config, ids)
        oci.say_boot_id(config, spec, stage)  # runsc's processes cannot walk through the data directory
        # It counts in runsc's own kernel alone: root inside may mount what that kernel has (tmpfs, FUSE, overlays), and the daemon
        # gives a machine that began with another's memory its own host name.
        held = [*oci.CAPABILITIES, "CAP_SYS_ADMIN"]
        config["process"]["capabilities"] = dict.fromkeys(("bounding", "effective", "permitted"), held)
        return config

    async def close(self) -> None:
        await self._namespaces.close()
        await super().close()

    async def _terminate(self, machine_id: str, pidfd: int) -> None:
        command = (self._runsc, "--root", str(self._root), "kill", machine_id, "TERM")
        await processes.run(*command, stdio=subprocess.DEVNULL, timeout_s=10, check=False, env=ENVIRONMENT)

    def _forget(self, machine_id: str) -> None:
        for path in self._root.glob(f"{machine_id}_sandbox:*"):
            path.unlink(missing_ok=True)
        for directory in (self._root, Path("/run"), Path("/tmp")):  # where runsc puts its control socket
            (directory / f"runsc-{machine_id}.sock").unlink(missing_ok=True)

    def _known(self) -> set[str]:
        return {path.name.partition("_sandbox:")[0] for path in self._root.glob("*_sandbox:*")}

    def _disk_file(self, record: Record) -> Path:
        return record.bundle / IMAGE


async def address(slot: Slot) -> None:
    """Give the slot's interface its address, if it has none: runsc takes it over, and off the interface, whenever it starts."""
    if await _has_address(slot):
        return
    commands = (
        f"addr replace {slot.guest_address}/{slot.guest_prefix} dev eth0\n"
        f"link set eth0 up\nroute replace default via {slot.guest_gateway}\n"
    )
    await processes.run("nsenter", f"--net={slot.netns}", "ip", "-batch", "-", input=commands.encode(), timeout_s=10)


async def _has_address(slot: Slot) -> bool:
    """Looked up in a thread of its own that ends: one that stayed in the namespace would do other work there by mistake."""
    answer: Future[bool] = Future()

    def look() -> None:
        try:
            namespace = os.open(slot.netns, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if _libc.setns(namespace, CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            finally:
                os.close(namespace)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
                fcntl.ioctl(query, SIOCGIFADDR, struct.pack("16s240x", b"eth0"))
            answer.set_result(True)
        except OSError:  # no address, or no telling: it is set once more
            answer.set_result(False)

    threading.Thread(target=look, name="address", daemon=True).start()
    return await asyncio.wrap_future(answer)


def _reason(error: Exception) -> str:
    """One line of what runsc said; it adds a trace of its own code."""
    text = error.output if isinstance(error, processes.CommandFailed) else str(error)
    return text.strip().splitlines()[0][:300] if text.strip() else "runsc gave no reason"
