"""Everything an instance owns on this host, found by looking at the host alone."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from sandlot.wiring.node import instance_id

CGROUPS = Path("/sys/fs/cgroup")
PINS = Path("/run/netns")


def owned(data_dir: Path) -> set[str]:
    """One line per thing: whatever this instance has outside its database, its logs and its caches."""
    return {*slots(data_dir), *traces(data_dir), *_firewall(data_dir), *_group_parents(data_dir)}


def traces(data_dir: Path) -> set[str]:
    """What sandboxes leave: everything except network slots that wait for the next one, and the instance's own frame."""
    return {
        *_directories(data_dir),
        *_groups(data_dir),
        *_mounts(data_dir),
        *_loops(data_dir),
        *_processes(data_dir),
    }


def slots(data_dir: Path) -> set[str]:
    instance = instance_id(data_dir)
    pins = [path.name for path in PINS.iterdir()] if PINS.is_dir() else []
    links = [name for _, name in socket.if_nameindex()]
    return {
        *(f"namespace {name}" for name in pins if name.startswith(f"sl-{instance}-")),
        *(f"link {name}" for name in links if name.startswith(f"sl{instance}")),
    }


def _directories(data_dir: Path) -> Iterator[str]:
    for pattern in ("sandboxes/*", "run/*/*", "network/claims/*"):
        yield from (f"path {path}" for path in data_dir.glob(pattern))


def _parents(data_dir: Path) -> Iterator[Path]:
    name = f"sandlot-{instance_id(data_dir)}"
    yield from (path for path in (CGROUPS / name, *CGROUPS.glob(f"*/{name}")) if path.is_dir())


def _group_parents(data_dir: Path) -> Iterator[str]:
    yield from (f"cgroup {path}" for path in _parents(data_dir))


def _groups(data_dir: Path) -> Iterator[str]:
    for parent in _parents(data_dir):
        with contextlib.suppress(FileNotFoundError):
            yield from (f"cgroup {path}" for path in parent.iterdir() if path.is_dir())


def _mounts(data_dir: Path) -> Iterator[str]:
    """In every mount namespace of the host that a process holds."""
    seen: set[int] = set()
    for process in _pids():
        with contextlib.suppress(OSError):
            namespace = (process / "ns" / "mnt").stat().st_ino
            if namespace not in seen:
                seen.add(namespace)
                lines = (process / "mountinfo").read_text().splitlines()
                yield from (f"mount {line}" for line in lines if str(data_dir) in line)


def _loops(data_dir: Path) -> Iterator[str]:
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            if (backing := file.read_text().strip()).startswith(str(data_dir)):
                yield f"loop device of {backing}"


def _processes(data_dir: Path) -> Iterator[str]:
    """In a cgroup of the instance, or started with one of its paths (the runtimes' own processes)."""
    group, paths = f"/sandlot-{instance_id(data_dir)}/", (f"{data_dir}/run", f"{data_dir}/sandboxes")
    for process in _pids():
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            if group in (process / "cgroup").read_text() or any(path in command for path in paths):
                yield f"process {process.name}: {command[:200]}"


def _firewall(data_dir: Path) -> Iterator[str]:
    instance = instance_id(data_dir)
    tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
    yield from (f"nft {line}" for line in tables.splitlines() if instance in line)
    with contextlib.suppress(FileNotFoundError):
        block = (data_dir / "network" / "block").read_text().strip()
        routes = subprocess.run(["ip", "-4", "-json", "route"], capture_output=True, text=True, check=True).stdout
        yield from (f"route {route}" for route in json.loads(routes) if route["dst"] == block)


def _pids() -> Iterator[Path]:
    own = str(os.getpid())
    yield from (path for path in Path("/proc").iterdir() if path.name.isdigit() and path.name != own)
