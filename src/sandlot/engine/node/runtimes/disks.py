"""Disks of machines: sparse ext4 images of a fixed size, so that a full disk is full inside one sandbox only."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import struct
import tempfile
import time
from pathlib import Path

from sandlot.engine.core.errors import Unavailable
from sandlot.engine.node import processes

LOOP_CTL_GET_FREE, LOOP_CONFIGURE = 0x4C82, 0x4C0A
LO_FLAGS_AUTOCLEAR = 4
MS_NOATIME, MS_NODEV = 0x400, 0x4
# struct loop_config: fd, block size, then struct loop_info64 (232 bytes, flags at 52), then 64 reserved bytes
_LOOP_CONFIG = struct.Struct("=II52xI176x64x")
UPPER, WORK = "upper", "work"
MB = 1 << 20


async def make(image: Path, size_mb: int, cache: Path) -> None:
    """Write a new, empty, formatted image that holds the directories `upper` and `work`."""
    template = cache / f"ext4-{size_mb}.img"
    if not template.exists():
        await _format(template, size_mb)
    copy_sparse(template, image)


async def _format(template: Path, size_mb: int) -> None:
    """Make the image that all disks of this size are copied from. No journal: a disk never outlives a crash of the host."""
    template.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".format-", dir=template.parent))
    try:
        content = scratch / "content"
        for name in (UPPER, WORK):
            (content / name).mkdir(parents=True)
            (content / name).chmod(0o755)
        draft = scratch / "image"
        with draft.open("wb") as file:
            file.truncate(size_mb * MB)
        await processes.run(
            "mkfs.ext4", "-b", "4096", "-q", "-F", "-m", "0", "-O", "^has_journal,^resize_inode", "-E", "lazy_itable_init=1,nodiscard",
            "-d", str(content), str(draft),
        )  # fmt: skip
        draft.rename(template)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


async def take_over(source: Path, target: Path, *, in_place: bool) -> None:
    """Have an earlier disk under a new name: the disk itself, or a copy. What a crash left in it is put right."""
    if in_place:
        os.link(source, target)
    else:
        await asyncio.to_thread(copy_sparse, source, target)
    checked = await processes.run("e2fsck", "-p", str(target), check=False, timeout_s=600)
    if checked.status > 2:  # 1 and 2: errors were found and corrected
        raise Unavailable(
            f"the disk is damaged and could not be repaired: {checked.stdout.decode(errors='replace')[-300:]}"
        )


def flush(directory: int) -> None:
    """Write out the file system that an open directory is on."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syncfs(directory) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def copy_sparse(source: Path, target: Path) -> None:
    """Copy what is not a hole; on file systems that can, without copying the data at all."""
    with source.open("rb", buffering=0) as src, target.open("xb", buffering=0) as dst:
        size = os.fstat(src.fileno()).st_size
        dst.truncate(size)
        offset = 0
        while offset < size:
            try:
                start = os.lseek(src.fileno(), offset, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # only a hole is left
                    return
                raise
            offset = os.lseek(src.fileno(), start, os.SEEK_HOLE)
            while start < offset:
                start += os.copy_file_range(src.fileno(), dst.fileno(), offset - start, start, start)


async def released(ending: str, within_s: float = 10) -> None:
    """Wait until no loop device holds an image whose path ends so: two mounts of one image would ruin it."""
    deadline = time.monotonic() + within_s
    while any(ending in text for text in map(_backing, Path("/sys/block").glob("loop*/loop/backing_file"))):
        if time.monotonic() > deadline:
            raise Unavailable("the disk of a machine that was stopped is still in use by the kernel")
        await asyncio.sleep(0.005)


def _backing(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text()
    return ""


def mount(image: Path, target: Path) -> None:
    """Mount an image. Its loop device frees itself when the last mount of it ends, whoever holds that one."""
    with image.open("r+b", buffering=0) as file:
        device, fd = _attach(file.fileno())
        try:
            # discard: what the guest deletes goes back to the host. noinit_itable: a sparse image is zero already.
            processes.mount(device, target, "ext4", MS_NOATIME | MS_NODEV, "discard,noinit_itable")
        finally:
            os.close(fd)


def _attach(file: int) -> tuple[str, int]:
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(64):  # another process may take the free device between the two calls
            number = fcntl.ioctl(control, LOOP_CTL_GET_FREE)
            device = f"/dev/loop{number}"
            with contextlib.suppress(FileNotFoundError):
                fd = os.open(device, os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.ioctl(fd, LOOP_CONFIGURE, _LOOP_CONFIG.pack(file, 4096, LO_FLAGS_AUTOCLEAR))
                    return device, fd
                except OSError as error:
                    os.close(fd)
                    if error.errno != errno.EBUSY:
                        raise
            _make_node(device, number)
    except OSError as error:
        raise Unavailable(f"could not attach a disk image to a loop device: {error.strerror}") from error
    finally:
        os.close(control)
    raise Unavailable("could not attach a disk image: every loop device is taken; see `losetup --list`")


def _make_node(device: str, number: int) -> None:
    """Hosts without udev do not make nodes for new loop devices by themselves."""
    with contextlib.suppress(FileExistsError):
        os.mknod(device, 0o660 | 0o060000, os.makedev(7, number))
