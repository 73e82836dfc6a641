"""Idmapped mounts: shows a directory with its owners shifted into a machine's own id range, leaving the disk untouched."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandlot.engine.core.errors import EngineError, Unavailable
from sandlot.engine.node import processes

WIDTH = 65536
FIRST = 0x1000_0000  # far above real users and the usual /etc/subuid ranges
LAST = 0x7FFF_0000  # ping_group_range ends at 2^31 - 1
AHEAD = 8  # user namespaces that are made before they are needed

# Numbers of system calls from 424 on are the same on every architecture.
SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_MOUNT_SETATTR = 428, 429, 442
AT_FDCWD, AT_EMPTY_PATH = -100, 0x1000
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 1, 0o2000000
MOVE_MOUNT_F_EMPTY_PATH = 4
MOUNT_ATTR_RDONLY, MOUNT_ATTR_IDMAP = 0x1, 0x0010_0000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _MountAttr(ctypes.Structure):
    _fields_ = [
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    ]


_CAPABILITY_VERSION_3 = 0x20080522


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _CapData(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32)]


@dataclass(frozen=True, slots=True)
class IdRange:
    """Host ids `first` to `first + WIDTH - 1`: what 0 to WIDTH - 1 inside a machine are outside."""

    first: int

    @classmethod
    def of(cls, instance: str, index: int) -> IdRange:
        """The range of one slot. Instances start at different places, so that neighbours rarely share a range."""
        places = (LAST - FIRST) // WIDTH
        return cls(FIRST + (int(instance, 16) * 257 + index) % places * WIDTH)


class UserNamespaces:
    """User namespaces by id range, made when first asked for and kept open: the kernel's word for a mapping."""

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._fds: dict[IdRange, int] = {}
        self._making: asyncio.Task[None] | None = None

    async def get(self, ids: IdRange) -> int:
        if ids not in self._fds:
            fd = await processes.to_the_end(_make_namespace(ids))
            if ids in self._fds:
                os.close(fd)
            else:
                self._fds[ids] = fd
        return self._fds[ids]

    def get_ahead(self, index: int) -> None:
        """Slots are given out in order: have those ready that are likely asked for after this one."""
        if self._making is None or self._making.done():
            ranges = [IdRange.of(self._instance, index + step) for step in range(1, AHEAD + 1)]
            self._making = asyncio.create_task(self._make(ranges))

    async def _make(self, ranges: Sequence[IdRange]) -> None:
        """One after the other. What fails fails again when it is needed."""
        with contextlib.suppress(EngineError):
            for ids in ranges:
                await self.get(ids)

    async def close(self) -> None:
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)


async def _make_namespace(ids: IdRange) -> int:
    """Have a short-lived process make a user namespace, map it from outside, and keep a descriptor of it."""
    with contextlib.ExitStack() as stack:
        said_r, said_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        stack.callback(os.close, said_r)
        hold_r, hold_w = os.pipe2(os.O_CLOEXEC)
        holding = stack.enter_context(os.fdopen(hold_w, "wb"))
        script = f"echo $$ >/proc/self/fd/{said_w}; read _ </proc/self/fd/{hold_r}; :"  # sh knows one-digit fds only
        child = asyncio.create_task(
            processes.run("unshare", "--user", "--", "sh", "-c", script, pass_fds=(said_w, hold_r), timeout_s=10)
        )
        try:
            await asyncio.sleep(0)  # the child is spawned; our copies of its ends must go, so that its death is seen
            os.close(said_w)
            os.close(hold_r)
            await asyncio.wait_for(processes.readable(said_r), 10)
            pid = int(os.read(said_r, 32) or b"0")
            if pid <= 1:
                raise Unavailable("could not make a user namespace; is `user.max_user_namespaces` 0 on this host?")
            for kind in ("uid_map", "gid_map"):
                Path(f"/proc/{pid}/{kind}").write_text(f"0 {ids.first} {WIDTH}\n")
            return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, TimeoutError) as error:
            raise Unavailable(f"could not map a user namespace: {error}") from error
        finally:
            holding.close()
            await asyncio.gather(child, return_exceptions=True)


def show_mapped(source: Path, target: Path, userns: int, *, readonly: bool = False) -> None:
    """Mount `source` on `target` with its owners mapped by the user namespace."""
    tree = _syscall(SYS_OPEN_TREE, AT_FDCWD, os.fsencode(source), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC, doing="open")
    try:
        attributes = _MountAttr(MOUNT_ATTR_IDMAP | (MOUNT_ATTR_RDONLY if readonly else 0), 0, 0, userns)
        size = ctypes.sizeof(attributes)
        _syscall(SYS_MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, ctypes.byref(attributes), size, doing="map the owners of")
        _syscall(SYS_MOVE_MOUNT, tree, b"", AT_FDCWD, os.fsencode(target), MOVE_MOUNT_F_EMPTY_PATH, doing="bundle")
    finally:
        os.close(tree)


@contextlib.contextmanager
def acting_as_root_of(ids: IdRange) -> Iterator[None]:
    """Have this thread own the files it makes as the machine's root does, with no capability less.

    overlayfs makes its working files as whoever mounted it, and the host's root has no id in a mapped mount.
    """
    header, held = _CapHeader(_CAPABILITY_VERSION_3, 0), (_CapData * 2)()
    _libc.capget(ctypes.byref(header), held)
    try:
        _libc.setfsgid(ids.first)
        _libc.setfsuid(ids.first)  # drops the file capabilities from the effective set
        if _libc.capset(ctypes.byref(header), held) != 0:
            raise Unavailable(f"could not act as a machine's root: {os.strerror(ctypes.get_errno())}")
        yield
    finally:
        _libc.setfsuid(0)
        _libc.setfsgid(0)
        _libc.capset(ctypes.byref(header), held)


def _syscall(number: int, *args: object, doing: str) -> int:
    result: int = _libc.syscall(number, *args)
    if result < 0:
        reason = os.strerror(ctypes.get_errno())
        raise Unavailable(f"could not {doing} a layer of a root filesystem: {reason} (idmapped mounts need Linux 5.19)")
    return result
