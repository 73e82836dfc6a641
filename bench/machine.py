"""Facts about the machine that a result needs to be read rightly, and none that name the machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import sandlot

_VERSION = re.compile(r"\d[\w.+~-]*")


def facts() -> dict[str, str | int | float]:
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 0,
        "memory_gib": round(_memory_kib() / 1024**2, 1),
        "kernel": platform.release(),
        "system": _system(),
        "cgroups": "v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1",
        "load_1m": load(),
    }


def load() -> float:
    return round(os.getloadavg()[0], 2)


def versions() -> dict[str, str]:
    """Of the programs whose speed is measured; one that is not installed is left out."""
    found = {name: _program_version(name) for name in ("crun", "runc", "runsc", "containerd")}
    found["sandlot"] = sandlot.__version__
    found["e2b"] = importlib.metadata.version("e2b")
    found["python"] = platform.python_version()
    return {name: version for name, version in found.items() if version}


def _program_version(name: str) -> str:
    if shutil.which(name) is None:
        return ""
    said = subprocess.run([name, "--version"], capture_output=True, text=True, timeout=10).stdout
    match = _VERSION.search(said.partition("\n")[0].removeprefix(name))
    return match[0] if match else ""


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_kib() -> int:
    return int(Path("/proc/meminfo").read_text().split()[1])


def _system() -> str:
    return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
