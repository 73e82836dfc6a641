"""What the runtime suites stand on: a tiny root filesystem, slots made by hand, and a look at what a host has left."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import secrets
import shutil
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandlot.engine.core.model import Instance, MachineSpec, Resources, Slot
from sandlot.engine.node import processes
from sandlot.engine.node.runtimes import RUNTIMES, cgroups
from sandlot.engine.node.runtimes.driver import OciDriver

PORT = 8000
# Runs each connection's bytes as a shell script: the test's hand inside the machine.
SERVER = ("/bin/busybox", "nc", "-ll", "-p", str(PORT), "-e", "/bin/sh")
SMALL = Resources(cpu_count=1, memory_mb=256, disk_mb=64, pids=128)
CLONE_FS = 0x200
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def as_a_server() -> Iterator[None]:
    """Be for a while what a server process is: in mounts of its own, reaping orphans. Undone for the tests that follow."""
    handler = signal.getsignal(signal.SIGCHLD)
    before, reaping = processes._host_mounts, processes._reaping
    processes.enter_private_mounts()
    processes.watch_orphans()
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, handler)
        processes._reaping = reaping
        if before is None and processes._host_mounts is not None:
            _libc.unshare(CLONE_FS)  # a worker thread that is on its way out shares it, and forbids the next step
            assert _libc.setns(processes._host_mounts, processes.CLONE_NEWNS) == 0, os.strerror(ctypes.get_errno())
            os.close(processes._host_mounts)
            processes._host_mounts = None


def make_layer(directory: Path) -> Path:
    """A root filesystem of one static program."""
    for name in ("bin", "dev", "etc", "proc", "root", "sys", "tmp", "home"):
        (directory / name).mkdir(parents=True)
    busybox = shutil.which("busybox")
    assert busybox, "these tests need busybox: apt-get install busybox-static"
    shutil.copy(busybox, directory / "bin" / "busybox")
    applets = "cat chmod chown chroot cp dd df dmesg echo env false grep head hostname id insmod ip kill ln ls mkdir mknod \
        mount mv nc nsenter ping ps readlink rm sed setpriv sh sleep stat su sync tail touch true umount uname unshare wc"
    for applet in applets.split():
        (directory / "bin" / applet).symlink_to("busybox")
    (directory / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home:/bin/sh\n")
    (directory / "etc" / "group").write_text("root:x:0:\nuser:x:1000:\n")
    (directory / "tmp").chmod(0o1777)
    return directory


def make_guest(directory: Path) -> Path:
    directory.mkdir()
    (directory / "mark").write_text("guest runtime\n")
    return directory


@contextlib.asynccontextmanager
async def slot(index: int) -> AsyncIterator[Slot]:
    """A namespace with one wire to this host, as the network would make it, but with no rules."""
    name = f"slt-{secrets.token_hex(3)}"
    subnet = f"10.251.{os.getpid() % 250}.{index * 4 % 256}".rsplit(".", 1)
    gateway, guest = (f"{subnet[0]}.{int(subnet[1]) + last}" for last in (1, 2))
    commands = (
        f"netns add {name}\n"
        f"link add {name} type veth peer name eth0 address 02:00:00:00:00:02 netns {name}\n"
        f"addr add {gateway}/30 dev {name}\nlink set {name} up\n"
    )
    inside = f"addr add {guest}/30 dev eth0\nlink set eth0 up\nlink set lo up\nroute add default via {gateway}\n"
    await processes.run("ip", "-batch", "-", input=commands.encode())
    try:
        await processes.run("ip", "-n", name, "-batch", "-", input=inside.encode())
        netns = Path("/run/netns") / name
        # What the network sets in every slot. /proc/sys/net is covered in the server's mounts, and is the reader's own.
        script = "mount -t proc proc /proc; echo 0 2147483647 >/proc/sys/net/ipv4/ping_group_range; \
            echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start"
        await processes.run("nsenter", f"--net={netns}", "unshare", "--mount", "sh", "-c", script)
        yield Slot(index=index, netns=netns, address=guest, guest_address=guest, guest_gateway=gateway)
    finally:
        await processes.run("ip", "link", "del", name, check=False)
        await processes.run("ip", "netns", "del", name, check=False)


@contextlib.asynccontextmanager
async def real_bench(name: str, directory: Path, layer: Path, guest: Path) -> AsyncIterator[Bench]:
    """A real driver on a data directory that nobody else can walk through, with one slot; clean when it ends."""
    data_dir, instance = directory / "data", secrets.token_hex(3)
    data_dir.mkdir(mode=0o700)

    def make() -> OciDriver:
        return RUNTIMES[name](data_dir, instance)

    async with slot(index=1) as place:
        bench = Bench(make(), data_dir, layer, guest, place, instance, make)
        try:
            await bench.runtime.check()
            yield bench
        finally:
            await bench.clean()


@dataclass
class Bench:
    """One driver with all it needs to start machines, and with what must be gone when they are."""

    runtime: Any
    data_dir: Path
    layer: Path
    guest: Path
    slot: Slot
    instance: str
    makes: Any  # makes a second driver object for the same host
    real: bool = True
    started: list[Instance] = field(default_factory=list)

    def spec(self, argv: tuple[str, ...] = SERVER, machine_id: str = "i1", **given: Any) -> MachineSpec:
        values: Mapping[str, Any] = {
            "machine_id": machine_id,
            "directory": self.data_dir / "sandboxes" / machine_id,
            "layers": (self.layer,),
            "guest": self.guest,
            "slot": self.slot,
            "resources": SMALL,
            "hostname": machine_id,
            "argv": argv,
            "env": {"PATH": "/bin", "GREETING": "hello"},
        }
        return MachineSpec(**{**values, **given})

    async def start(self, argv: tuple[str, ...] = SERVER, machine_id: str = "i1", **given: Any) -> Instance:
        instance: Instance = await self.runtime.start(self.spec(argv, machine_id, **given))
        self.started.append(instance)
        return instance

    async def ask(self, script: str, timeout_s: float = 60) -> str:
        """Run a shell script in the machine at the bench's slot and return all it wrote."""
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    reader, writer = await asyncio.open_connection(self.slot.guest_address, PORT)
                    break
                except OSError:
                    await asyncio.sleep(0.01)
            try:
                writer.write(f"exec 2>&1\n{script}\nexit\n".encode())
                return (await reader.read(-1)).decode(errors="replace")
            except ConnectionResetError:
                return ""
            finally:
                writer.close()

    async def left_behind(self) -> list[str]:
        """Everything on this host that names one of the machines, or that they alone could have made."""
        if not self.real:
            return [found.machine_id for found in await self.runtime.instances()]
        found = [str(path) for path in (self.data_dir / "sandboxes").glob("*/runtime")]
        found += [
            str(path)
            for top in ("run/*-machines", "run/gvisor", "run/container")
            for path in self.data_dir.glob(top + "/*")
        ]
        found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if self._is_of_machine(line)]
        found += [
            path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file") if self._is_ours(path)
        ]
        found += [f"cgroup {name}" for name in cgroups.names(f"/sandlot-{self.instance}")]
        found += self._processes()
        return found

    def _is_of_machine(self, line: str) -> bool:
        return str(self.data_dir) in line or f"/run/sandlot-{self.instance}/i" in line

    def _is_ours(self, path: Path) -> bool:
        with contextlib.suppress(OSError):
            return str(self.data_dir) in path.read_text()
        return False

    def _processes(self) -> list[str]:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if str(self.data_dir).encode() in (line := path.read_bytes()):
                    found.append(line.decode(errors="replace"))
        return found

    async def gone(self, timeout_s: float = 60) -> bool:
        """Whether nothing is left, soon: the kernel frees loop devices and cgroups a moment after their last user."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while left := await self.left_behind():
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"left behind: {left}")
            await asyncio.sleep(0.02)
        return True

    async def clean(self) -> None:
        for found in await self.runtime.instances():
            await self.runtime.stop(found)
        await self.runtime.close()
