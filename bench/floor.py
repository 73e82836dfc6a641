"""The floor: what the bare OCI programs need for a container that runs `true` and ends, with no network and nothing around it."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

# crun does not start where controllers of cgroup v2 stand beside v1; a mount namespace of its own hides them from it.
_HIDE = 'umount -l /sys/fs/cgroup/unified 2>/dev/null; exec "$@"'
PROGRAMS = {
    "container": ("crun", ()),
    "gvisor": ("runsc", ("--platform=systrap", "--network=none", "--ignore-cgroups")),
}


def measure(runtime: str, root: Path, rounds: int) -> list[float]:
    """Milliseconds of each round; empty where the program is not there or does not work by itself."""
    program, flags = PROGRAMS[runtime]
    if shutil.which(program) is None:
        return []
    with tempfile.TemporaryDirectory(prefix="sandlot-bench-floor-", dir="/var/tmp") as scratch:
        bundle, state = Path(scratch, "bundle"), Path(scratch, "state")
        bundle.mkdir()
        state.mkdir()
        (bundle / "config.json").write_text(json.dumps(_config(root)))
        argv = ["unshare", "--mount", "sh", "-c", _HIDE, "sh", program, "--root", str(state), *flags]
        times = []
        for number in range(rounds + 1):
            started = time.perf_counter()
            name = f"floor{number}"
            done = subprocess.run(
                [*argv, "run", "--bundle", str(bundle), name], capture_output=True, check=False, timeout=60
            )
            if done.returncode != 0:
                return []
            times.append((time.perf_counter() - started) * 1000)
        return times[1:]


def _config(root: Path) -> dict[str, object]:
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
    ]
    kinds = ("pid", "network", "ipc", "uts", "mount")
    return {
        "ociVersion": "1.0.2",
        "process": {"terminal": False, "user": {"uid": 0, "gid": 0}, "args": ["/bin/true"], "cwd": "/", "env": []},
        "root": {"path": str(root), "readonly": True},
        "mounts": mounts,
        "linux": {"namespaces": [{"type": kind} for kind in kinds]},
    }
