"""Root filesystems of machines: read-only layers, the machine's own names, and a writable layer on top."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from sandlot.engine.core.errors import MachineFailed
from sandlot.engine.core.model import GUEST_MOUNT, MachineSpec
from sandlot.engine.node import processes, trees
from sandlot.engine.node.runtimes import disks, idmap
from sandlot.engine.node.runtimes.idmap import IdRange
from sandlot.engine.node.runtimes.oci import BOOT_ID

MS_RDONLY, MS_NODEV = 0x1, 0x4


def write_names(spec: MachineSpec, layer: Path) -> None:
    """Make the layer that holds what only this machine has: its host name, its hosts file, its resolver.

    A layer rather than bind mounts: the guest's root may change these files, within the disk cap, like any other.
    """
    etc = layer / "etc"
    guest = layer / GUEST_MOUNT.lstrip("/")  # runsc cannot make a mount point on a read-only tree
    for path in (etc, guest):
        path.mkdir(parents=True)
    (etc / "hostname").write_text(f"{spec.hostname}\n")
    (etc / "hosts").write_text(
        f"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n{spec.slot.guest_address}\t{spec.hostname}\n"
    )
    (etc / "resolv.conf").write_text(f"nameserver {spec.slot.guest_gateway}\n")
    boot_id = layer / BOOT_ID.lstrip("/")  # likewise a mount point
    boot_id.parent.mkdir(parents=True)
    boot_id.touch()
    for path in (layer, guest, etc, *etc.iterdir()):  # whatever the server's umask is
        path.chmod(0o755 if path.is_dir() else 0o644)
    # runsc covers an empty /tmp with memory; a directory that is usually there anyway keeps it on the disk.
    for path in (layer / "tmp", layer / "tmp" / ".X11-unix"):
        path.mkdir()
        path.chmod(0o1777)


def copy_names(source: Path, layer: Path) -> None:
    """The same layer again, to the last timestamp: a machine that goes on from its memory compares."""
    shutil.copytree(source, layer, symlinks=True)


def stand_in_for_sudo(spec: MachineSpec, layer: Path) -> None:
    """Put the guest runtime's sudo over the image's, for kernels that ignore set-user-ID bits."""
    own, name = spec.guest / "bin" / "sudo", Path("usr/bin/sudo")
    if own.is_file() and any(trees.exists(below, str(name)) for below in spec.layers):
        (layer / name).parent.mkdir(parents=True)
        shutil.copyfile(own, layer / name)
        for path in (layer / "usr", layer / "usr" / "bin", layer / name):
            path.chmod(0o755)


def check_layers(spec: MachineSpec) -> None:
    for layer in spec.layers:
        if not layer.is_dir():
            raise MachineFailed(
                f"sandbox {spec.machine_id} needs the layer {layer.name!r}, which is not on this host; rebuild its template"
            )
    if not spec.layers:
        raise MachineFailed(f"sandbox {spec.machine_id} has no layers to start from; rebuild its template")


class Stage:
    """Where the server puts root filesystems together: a directory of its own in its private mount namespace.

    A machine's root must be able to walk to its root filesystem, and the data directory is closed to everybody else. So
    the trees are mounted below /run instead; they, and the stage, exist only in the server's view and end with it.
    """

    def __init__(self, instance: str) -> None:
        self._top = Path("/run") / f"sandlot-{instance}"

    def bundle(self, machine_id: str) -> Path:
        return self._top / machine_id

    def make(self, machine_id: str) -> Path:
        if not os.path.ismount(self._top):  # another driver of this process may have been first
            self._set_up()
        bundle = self.bundle(machine_id)
        bundle.mkdir(mode=0o711)
        return bundle

    def _set_up(self) -> None:
        flags = processes.MS_NOSUID | processes.MS_NODEV | processes.MS_NOEXEC
        self._top.mkdir(exist_ok=True)
        processes.mount("tmpfs", self._top, "tmpfs", processes.MS_NODEV, "mode=0711,size=4m")
        # The kernel lets a new user namespace mount /proc only where a whole one is already to be seen, and the server
        # covers a part of its own (`processes.enter_private_mounts`).
        proc = self._top / ".proc"
        proc.mkdir(mode=0o700)
        processes.mount("proc", proc, "proc", flags)

    def close(self) -> None:
        if os.path.ismount(self._top):
            processes.unmount(self._top / ".proc")
            processes.unmount(self._top)
        with contextlib.suppress(OSError):
            self._top.rmdir()

    def clear(self, machine_id: str) -> None:
        """Take away whatever is mounted for a machine in this process's view; nothing there is fine.

        Another driver of this process may be at the same work: what it has just taken away is gone, too.
        """
        bundle = self.bundle(machine_id)
        with contextlib.suppress(FileNotFoundError):
            for path in sorted(bundle.iterdir()):
                while os.path.ismount(path):
                    processes.unmount(path)
                with contextlib.suppress(FileNotFoundError):
                    path.rmdir() if path.is_dir() else path.unlink()
            bundle.rmdir()


def mount_writable(bundle: Path, layers: Sequence[Path], image: Path, ids: IdRange, userns: int) -> Path:
    """Mount layers (bottom first) and a writable disk as one tree, owned by `ids`; return the tree."""
    lowers = _lowers(bundle, layers, userns)
    disk, root = directory(bundle / "disk"), directory(bundle / "root")
    disks.mount(image, disk)
    idmap.show_mapped(disk, disk, userns)
    with idmap.acting_as_root_of(ids):
        _overlay(root, lowers, f"upperdir={disk / disks.UPPER},workdir={disk / disks.WORK}")
    return root


def mount_readonly(bundle: Path, layers: Sequence[Path], userns: int) -> Path:
    """Mount layers (bottom first) as one read-only tree, owned as the user namespace says; return the tree."""
    root = directory(bundle / "root")
    _overlay(root, _lowers(bundle, layers, userns), "", MS_RDONLY)
    return root


def _lowers(bundle: Path, layers: Sequence[Path], userns: int) -> list[Path]:
    """Short names: the kernel reads at most a page of mount options."""
    return [show_readonly(layer, bundle / f"l{number}", userns) for number, layer in enumerate(layers)]


def show_readonly(source: Path, target: Path, userns: int) -> Path:
    """Show a directory where nobody can change it. The runtimes' own "ro" is not enough: runsc lets a guest truncate."""
    idmap.show_mapped(source, directory(target), userns, readonly=True)
    return target


def keep_disk(image: Path, into: Path) -> None:
    """Keep a machine's disk beyond its end, which comes next."""
    into.mkdir(parents=True)
    os.link(image, into / image.name)


@contextlib.asynccontextmanager
async def written(stage: Stage, image: Path, machine_id: str) -> AsyncIterator[Path]:
    """What a machine that has ended had changed, as a directory to be copied from its disk."""
    name = f"written-{secrets.token_hex(4)}"
    bundle = stage.make(name)
    try:
        await disks.released(str(Path(machine_id) / "runtime" / image.name))
        disk = directory(bundle / "disk")
        disks.mount(image, disk)
        yield disk / disks.UPPER
    finally:
        stage.clear(name)


def directory(path: Path) -> Path:
    """A new directory that everybody may walk through."""
    path.mkdir(mode=0o755)
    return path


def _overlay(target: Path, lowers: Sequence[Path], upper: str, flags: int = 0) -> None:
    stack = ":".join(str(lower) for lower in reversed(lowers))
    processes.mount(
        "overlay", target, "overlay", flags | MS_NODEV, ",".join(filter(None, (f"lowerdir={stack}", upper)))
    )
