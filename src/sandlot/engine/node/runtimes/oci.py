"""OCI configurations: says, in the runtimes' common language, what a machine may see, do and use."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandlot.engine.core.model import GUEST_MOUNT, MachineSpec, Resources
from sandlot.engine.node.runtimes import cgroups
from sandlot.engine.node.runtimes.idmap import WIDTH, IdRange

BOOT_ID = "/proc/sys/kernel/random/boot_id"
MB = 1 << 20
CPU_PERIOD_US = 100_000
OPEN_FILES = 65536

# What root inside needs for packages, users, sudo and debuggers. All of them count only inside the machine:
# NET_RAW does nothing in a slot that the host's user namespace owns, but without it ping (a file capability) cannot even run.
CAPABILITIES = (
    "CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE",
)  # fmt: skip
MASKED = (
    "/proc/acpi", "/proc/asound", "/proc/cmdline", "/proc/config.gz", "/proc/diskstats", "/proc/interrupts", "/proc/kallsyms", "/proc/kcore", "/proc/keys",
    "/proc/kmsg", "/proc/kpagecount", "/proc/kpageflags", "/proc/latency_stats", "/proc/modules", "/proc/partitions",
    "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/proc/sysrq-trigger",
)  # fmt: skip
READONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys")
# Guests see these parts of the host's /sys, read-only: enough to count processors, nothing that names the host's devices.
SYS_PARTS = ("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm/transparent_hugepage")


def config(spec: MachineSpec, root: Path, guest: Path, cgroup: str, resources: Mapping[str, Any]) -> dict[str, Any]:
    """What both runtimes share: the process, the root, the namespaces, the limits."""
    return {
        "ociVersion": "1.0.2",
        "hostname": spec.hostname,
        "root": {"path": str(root), "readonly": False},
        "process": _process(spec),
        "mounts": [*_kernel_mounts(spec.resources), _bind(guest, GUEST_MOUNT)],
        "linux": {
            "cgroupsPath": cgroup,
            "namespaces": [
                *({"type": kind} for kind in ("pid", "ipc", "uts", "mount")),
                {"type": "network", "path": str(spec.slot.netns)},
            ],
            "resources": dict(resources),
            "rootfsPropagation": "private",
        },
    }


def say_boot_id(config: dict[str, Any], spec: MachineSpec, directory: Path) -> None:
    """Have the guest's kernel tell the boot id we chose: a boot is ours to count, also where no kernel boots."""
    if spec.boot_id is not None:
        file = directory / "boot_id"
        file.write_text(f"{spec.boot_id}\n")
        file.chmod(0o444)
        config["mounts"].append(_bind(file, BOOT_ID))


def map_ids(config: dict[str, Any], ids: IdRange) -> None:
    """Give the machine user ids of its own: root inside, and whatever serves it, is nobody outside."""
    mapping = [{"containerID": 0, "hostID": ids.first, "size": WIDTH}]
    config["linux"]["namespaces"].append({"type": "user"})
    config["linux"] |= {"uidMappings": mapping, "gidMappings": mapping}


def harden(config: dict[str, Any], filter: Mapping[str, Any]) -> None:
    """What a machine on the host's own kernel needs besides: a filter, covered paths, a small /sys."""
    linux = config["linux"]
    linux["namespaces"].append({"type": "cgroup"})
    linux |= {
        "seccomp": dict(filter),
        "maskedPaths": list(MASKED),
        "readonlyPaths": list(READONLY),
    }
    config["mounts"] += [
        _mount("tmpfs", "/sys", "nosuid", "noexec", "nodev", "mode=755", "size=64k", "ro"),
        *(_bind(Path(part), part) for part in SYS_PARTS if Path(part).is_dir()),
    ]


def limits(resources: Resources, *, pids: int) -> dict[str, Any]:
    """What the machine's control group enforces. Swap counts as memory, so that a limit is a limit."""
    memory = resources.memory_mb * MB
    return {
        "memory": {"limit": memory, "swap": memory} if cgroups.counts_swap() else {"limit": memory},
        "cpu": {"quota": resources.cpu_count * CPU_PERIOD_US, "period": CPU_PERIOD_US, "shares": 1024},
        "pids": {"limit": pids},
        "devices": [{"allow": False, "access": "rwm"}],
    }


def _process(spec: MachineSpec) -> dict[str, Any]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    held = list(CAPABILITIES)
    return {
        "terminal": False,
        "user": {"uid": 0, "gid": 0},
        "args": list(spec.argv),
        "env": [f"{name}={value}" for name, value in spec.env.items()],
        "cwd": "/",
        "noNewPrivileges": False,  # sudo works inside; what it gives counts only there (decision 0003)
        "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), held),
        "rlimits": [
            {"type": "RLIMIT_NOFILE", "soft": files, "hard": files},
            {"type": "RLIMIT_NPROC", "soft": spec.resources.pids, "hard": spec.resources.pids},
            {"type": "RLIMIT_CORE", "soft": 0, "hard": 0},  # the host's core handler is not the guest's to call
        ],
        "oomScoreAdj": 500,  # under pressure of the whole host, machines go before the server
    }


def _kernel_mounts(resources: Resources) -> list[dict[str, Any]]:
    shm = resources.memory_mb * MB // 2
    return [
        _mount("proc", "/proc", "nosuid", "noexec", "nodev"),
        _mount("tmpfs", "/dev", "nosuid", "strictatime", "mode=755", "size=1m"),
        _mount("devpts", "/dev/pts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"),
        _mount("tmpfs", "/dev/shm", "nosuid", "noexec", "nodev", "mode=1777", f"size={shm}"),
        _mount("mqueue", "/dev/mqueue", "nosuid", "noexec", "nodev"),
    ]


def _mount(kind: str, target: str, *options: str) -> dict[str, Any]:
    return {"destination": target, "type": kind, "source": kind, "options": list(options)}


def _bind(source: Path, target: str) -> dict[str, Any]:
    options = ["bind", "ro", "nosuid", "nodev"]
    return {"destination": target, "type": "bind", "source": str(source), "options": options}
