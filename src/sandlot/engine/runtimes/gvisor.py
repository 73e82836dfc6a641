"""The `gvisor` runtime: machines whose system calls are served by runsc's user-space kernel, never by the host's."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from sandlot.engine import processes
from sandlot.engine.errors import Unavailable
from sandlot.engine.model import Isolation, MachineSpec, Slot
from sandlot.engine.runtimes import disks, oci, rootfs
from sandlot.engine.runtimes.driver import OciDriver, Record

IMAGE = "disk.img"
PLATFORM = "--platform=systrap"
# A guest's thread is not one thread of the host: the kernel in user space needs its own, and two per guest process.
HOST_TASKS_PER_PID = 3
HOST_TASKS = 512


class GVisor(OciDriver):
    name = "gvisor"
    isolation = Isolation.SENTRY

    def __init__(self, data_dir: Path, instance: str, *, program: str | None = None) -> None:
        super().__init__(data_dir, instance, program=program)
        self._runsc = program or "runsc"
        self._said_version: str | None = None

    async def check(self) -> None:
        """Run one program under runsc for real: what keeps it from working (ptrace limits, old kernels) shows only then."""
        await self._version()
        if not Path("/dev/loop-control").exists():
            raise Unavailable("runtime 'gvisor' needs the loop module in the host's kernel: modprobe loop")
        with tempfile.TemporaryDirectory(prefix="sandlot-check-") as scratch:
            flags = ("--root", scratch, PLATFORM, "--network=none", "--ignore-cgroups")
            tried = await processes.run(self._runsc, *flags, "do", "/bin/true", check=False, timeout_s=30)
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

    async def _launch(self, spec: MachineSpec, place: Path) -> None:
        rootfs.write_names(spec, place / "names")
        await disks.make(place / IMAGE, spec.resources.disk_mb, self._cache)
        stage = self._stage.make(spec.sandbox_id)
        root, guest, store = await processes.to_the_end(asyncio.to_thread(self._mount, spec, place, stage))
        (place / "config.json").write_text(json.dumps(self._config(spec, root, guest)))
        await address(spec.slot)
        await self._run(
            *self._command(place, store), "run", "--detach", "--bundle", str(place),
            "--pid-file", str(self._pid_file(spec.sandbox_id)), spec.sandbox_id,
        )  # fmt: skip
        self._stage.clear(spec.sandbox_id)  # the machine's processes hold their own copies

    def _mount(self, spec: MachineSpec, place: Path, stage: Path) -> tuple[Path, Path, Path]:
        root = rootfs.mount_readonly(stage, (*spec.layers, place / "names"))
        guest = rootfs.show_readonly(spec.guest, stage / "guest")
        disk = rootfs.directory(stage / "disk")
        disks.mount(place / IMAGE, disk)
        return root, guest, disk / disks.UPPER

    def _command(self, place: Path, store: Path) -> tuple[str, ...]:
        """The flags are part of what a checkpoint depends on: run and restore must use the same."""
        return (
            self._runsc, "--root", str(self._root), "--log", str(place / "log"), PLATFORM,
            "--network=sandbox", "--net-raw", "--net-disconnect-ok", "--host-uds=none", "--file-access=exclusive",
            "--file-access-mounts=exclusive", f"--overlay2=root:dir={store}",
        )  # fmt: skip

    def _config(self, spec: MachineSpec, root: Path, guest: Path) -> dict[str, object]:
        limits = oci.limits(spec.resources, pids=HOST_TASKS + HOST_TASKS_PER_PID * spec.resources.pids)
        cgroup = f"{self._parent}/{spec.sandbox_id}"
        return oci.config(spec, root, guest, cgroup, limits)

    async def _terminate(self, sandbox_id: str, pidfd: int) -> None:
        command = (self._runsc, "--root", str(self._root), "kill", sandbox_id, "TERM")
        await processes.run(*command, stdio=subprocess.DEVNULL, timeout_s=10, check=False)

    def _forget(self, sandbox_id: str) -> None:
        for path in self._root.glob(f"{sandbox_id}_sandbox:*"):
            path.unlink(missing_ok=True)
        for directory in (self._root, Path("/run"), Path("/tmp")):  # where runsc puts its control socket
            (directory / f"runsc-{sandbox_id}.sock").unlink(missing_ok=True)

    def _known(self) -> set[str]:
        return {path.name.partition("_sandbox:")[0] for path in self._root.glob("*_sandbox:*")}

    def _disk_file(self, record: Record) -> Path:
        return record.place / IMAGE


async def address(slot: Slot) -> None:
    """Give the slot's interface its address again: runsc takes it over, and off the interface, whenever it starts."""
    commands = (
        f"addr replace {slot.guest_address}/{slot.guest_prefix} dev eth0\n"
        f"link set eth0 up\nroute replace default via {slot.guest_gateway}\n"
    )
    await processes.run("nsenter", f"--net={slot.netns}", "ip", "-batch", "-", input=commands.encode(), timeout_s=10)
