"""The doctor's checks: each looks at one thing this host must have and says how to get it."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sandlot.engine.core.errors import EngineError
from sandlot.program import SANDLOT
from sandlot.server import instance
from sandlot.settings import Settings
from sandlot.setup import gvisor, packages

GIB = 1 << 30
OLDEST_KERNEL = (5, 19)  # idmapped layers under overlayfs
Check = Callable[[Settings], "Finding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a check saw. `warn`: Sandlot works, with less."""

    name: str
    state: Literal["ok", "warn", "fail"]
    detail: str
    fix: str = ""


def examine(settings: Settings) -> Iterator[Finding]:
    """All checks, one after another."""
    for check in (*_BEFORE_START, *_DEEPER):
        yield check(settings)
    yield from _programs()
    yield from _runtimes(settings)


def before_start(settings: Settings) -> Iterator[Finding]:
    """The quick ones, which `up` makes every time."""
    return (check(settings) for check in _BEFORE_START)


def _root(_: Settings) -> Finding:
    if os.geteuid() == 0:
        return Finding(name="root", state="ok", detail="running as root")
    return Finding(name="root", state="fail", detail="not running as root", fix=f"use sudo: sudo {SANDLOT} ...")


def _kernel(_: Settings) -> Finding:
    release = platform.release()
    numbers = tuple(int(part) for part in re.findall(r"\d+", release)[:2])
    if platform.system() != "Linux" or numbers < OLDEST_KERNEL:
        wanted = ".".join(map(str, OLDEST_KERNEL))
        return Finding(
            name="kernel", state="fail", detail=f"{platform.system()} {release}", fix=f"use Linux {wanted} or newer"
        )
    return Finding(name="kernel", state="ok", detail=f"Linux {release}, {platform.machine()}")


def _port(settings: Settings) -> Finding:
    where = f"{settings.host}:{settings.port}"
    if settings.port == 0:
        return Finding(name="port", state="ok", detail="any free one")
    if _holder(settings) is not None:
        return Finding(name="port", state="ok", detail=f"{where}, this instance has it")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            return Finding(
                name="port",
                state="fail",
                detail=f"{where} cannot be used: {error.strerror}{_who_listens(settings.port)}",
                fix="end that program, or choose another port: --port N (another instance also needs --data-dir DIR)",
            )
    return Finding(name="port", state="ok", detail=f"{where} is free")


def _holder(settings: Settings) -> int | None:
    try:
        return instance.holder(settings.data_dir)
    except PermissionError:
        return None


def _who_listens(port: int) -> str:
    if not packages.found("ss"):
        return ""
    answer = subprocess.run(
        ["ss", "-Hltnp", f"sport = :{port}"], capture_output=True, text=True, check=False, timeout=10
    )
    match = re.search(r'\(\("([^"]+)",pid=(\d+)', answer.stdout)
    return f" ({match[1]}, pid {match[2]}, listens there)" if match else ""


def _domain(settings: Settings) -> Finding:
    if settings.domain is None:
        return Finding(name="domain", state="ok", detail="none: plain HTTP, routed by headers")
    name = f"any.{settings.domain.partition(':')[0]}"
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        fix = f"have *.{settings.domain} resolve to this machine (DNS), or use a domain below localhost with libnss-myhostname"
        return Finding(name="domain", state="fail", detail=f"{name} does not resolve here", fix=fix)
    return Finding(name="domain", state="ok", detail=f"*.{settings.domain} resolves")


def _disk(settings: Settings) -> Finding:
    free = min(_free(settings.data_dir), _free(settings.cache_dir))
    detail = f"{free / GIB:.1f} GiB free for {settings.data_dir} and {settings.cache_dir}"
    fix = "free some space, or choose other places: --data-dir DIR, SANDLOT_CACHE_DIR"
    state: Literal["ok", "warn", "fail"] = "ok" if free > 5 * GIB else "warn" if free > 2 * GIB else "fail"
    return Finding(name="disk", state=state, detail=detail, fix="" if state == "ok" else fix)


def _privacy(settings: Settings) -> Finding:
    name = "data directory"
    try:
        found = instance.open_to_others(settings.data_dir)
    except PermissionError:
        return Finding(name=name, state="ok", detail=f"{settings.data_dir} is closed to this user")
    if not found:
        return Finding(name=name, state="ok", detail=f"{settings.data_dir}: other users can read nothing that ran")
    fix = f"start the server again, which closes it, or: chmod go-rw {found[0]}"
    return Finding(name=name, state="warn", detail=f"other users can read {found[0]}", fix=fix)


def _free(path: Path) -> int:
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def _memory(_: Settings) -> Finding:
    facts = dict(re.findall(r"^(\w+):\s+(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE))
    free = int(facts["MemAvailable"]) * 1024
    detail = f"{free / GIB:.1f} GiB available"
    if free < GIB:
        return Finding(name="memory", state="warn", detail=detail, fix="end something: each sandbox may use 1 GiB")
    return Finding(name="memory", state="ok", detail=detail)


def _namespaces(_: Settings) -> Finding:
    absent = [
        kind for kind in ("mnt", "pid", "net", "ipc", "uts", "user") if not Path(f"/proc/self/ns/{kind}").exists()
    ]
    if absent:
        fix = "boot a kernel with these namespaces"
        return Finding(name="namespaces", state="fail", detail=f"missing: {', '.join(absent)}", fix=fix)
    if os.geteuid() == 0 and not _runs("unshare", "--mount", "--net", "--pid", "--fork", "--", "true"):
        fix = "run Sandlot on a real or virtual machine, or in a container that may make namespaces (--privileged)"
        return Finding(name="namespaces", state="fail", detail="this environment forbids making them", fix=fix)
    return Finding(name="namespaces", state="ok", detail="mount, pid, net, ipc, uts, user")


def _user_namespaces(_: Settings) -> Finding:
    limit = Path("/proc/sys/user/max_user_namespaces")
    if limit.exists() and int(limit.read_text()) < 16:
        fix = "sysctl -w user.max_user_namespaces=10000"
        return Finding(name="user namespaces", state="fail", detail=f"limited to {limit.read_text().strip()}", fix=fix)
    return Finding(name="user namespaces", state="ok", detail="allowed")


def _cgroups(_: Settings) -> Finding:
    unified = Path("/sys/fs/cgroup/cgroup.controllers")
    if unified.exists():
        lacking = {"cpu", "memory", "pids"} - set(unified.read_text().split())
        if lacking:
            fix = f"add to /sys/fs/cgroup/cgroup.subtree_control: {' '.join('+' + name for name in sorted(lacking))}"
            return Finding(name="cgroups", state="fail", detail=f"v2 without {', '.join(sorted(lacking))}", fix=fix)
        return Finding(name="cgroups", state="ok", detail="version 2")
    if all(Path(f"/sys/fs/cgroup/{name}").is_dir() for name in ("memory", "pids", "cpu", "freezer")):
        return Finding(name="cgroups", state="ok", detail="version 1")
    fix = "mount cgroup2 on /sys/fs/cgroup (systemd does), or start the container with its own cgroups"
    return Finding(name="cgroups", state="fail", detail="not mounted", fix=fix)


def _overlay(_: Settings) -> Finding:
    if "\toverlay\n" in Path("/proc/filesystems").read_text() or _runs("modprobe", "overlay"):
        return Finding(name="overlayfs", state="ok", detail="available")
    return Finding(name="overlayfs", state="fail", detail="the kernel lacks it", fix="modprobe overlay")


def _loop(_: Settings) -> Finding:
    if Path("/dev/loop-control").exists():
        return Finding(name="loop devices", state="ok", detail="available")
    return Finding(name="loop devices", state="fail", detail="/dev/loop-control is missing", fix="modprobe loop")


def _firewall(_: Settings) -> Finding:
    if os.geteuid() != 0:
        return Finding(name="nftables", state="warn", detail="only root can tell", fix=f"sudo {SANDLOT} doctor")
    table = "add table inet t { chain c { type nat hook postrouting priority 100; oifname eth0 masquerade; }; }"
    if not packages.found("nft"):
        return Finding(
            name="nftables", state="fail", detail="cannot be tried without nft", fix="install nft, see below"
        )
    if _runs("unshare", "--net", "--", "nft", table):
        return Finding(name="nftables", state="ok", detail="NAT rules load")
    return Finding(
        name="nftables", state="fail", detail="NAT rules do not load", fix="modprobe -a nf_tables nft_masq nft_nat"
    )


def _forwarding(_: Settings) -> Finding:
    enabled = Path("/proc/sys/net/ipv4/ip_forward").read_text().strip() == "1"
    detail = "on" if enabled else "off; `up` turns it on"
    return Finding(name="ip forwarding", state="ok", detail=detail)


def _gvisor(_: Settings) -> Finding:
    found = gvisor.version()
    fix = f"{SANDLOT} up installs it where it can; else see {gvisor.DOCS}"
    if found is None:
        return Finding(name="runsc", state="warn", detail="not installed: sandboxes use `container`", fix=fix)
    if found < gvisor.OLDEST:
        return Finding(name="runsc", state="warn", detail=f"{found} is too old (before {gvisor.OLDEST})", fix=fix)
    return Finding(name="runsc", state="ok", detail=f"release {found}")


def _programs() -> Iterator[Finding]:
    for need in packages.needs("run"):
        if need.name == "runsc":
            continue
        if need.is_met():
            yield Finding(name=need.name.rpartition("/")[2], state="ok", detail=need.why)
        else:
            state: Literal["warn", "fail"] = "warn" if need.optional else "fail"
            yield Finding(name=need.name, state=state, detail=f"missing; it {need.why}", fix=packages.fix([need]))


def _runtimes(settings: Settings) -> Iterator[Finding]:
    """Ask each runtime itself, in a directory of its own so that a running server is not disturbed."""
    from sandlot.engine.node.runtimes import RUNTIMES

    for name, driver in RUNTIMES.items():
        if os.geteuid() != 0:
            yield Finding(
                name=f"runtime {name}", state="warn", detail="only root can tell", fix=f"sudo {SANDLOT} doctor"
            )
            continue
        needed = settings.runtime == name or (settings.runtime == "auto" and name == "container")
        with tempfile.TemporaryDirectory(prefix="sandlot-doctor-") as directory:
            try:
                asyncio.run(driver(Path(directory), "d0c70f").check())
            except EngineError as error:
                state: Literal["warn", "fail"] = "fail" if needed else "warn"
                yield Finding(name=f"runtime {name}", state=state, detail=str(error), fix="see the lines above")
                continue
        yield Finding(name=f"runtime {name}", state="ok", detail="can start machines")


def _runs(*argv: str) -> bool:
    path = packages.found(argv[0])
    if path is None:
        return False
    try:
        done = subprocess.run([path, *argv[1:]], capture_output=True, stdin=subprocess.DEVNULL, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


_BEFORE_START: tuple[Check, ...] = (
    _root,
    _kernel,
    _port,
    _domain,
    _disk,
    _memory,
    _user_namespaces,
    _cgroups,
    _overlay,
    _loop,
)
_DEEPER: tuple[Check, ...] = (_privacy, _namespaces, _firewall, _forwarding, _gvisor)
