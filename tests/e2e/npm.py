"""E2B's JavaScript SDK and command line from npm, unmodified, installed once and kept for later runs."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.server import Server, clean_environment

PACKAGES = ("e2b@2.51.0", "@e2b/cli@2.19.0")
CACHE = Path(os.environ.get("SANDLOT_CACHE_DIR", "/var/cache/sandlot")) / "tests"
LEAST_NODE = 20
NODE_PACKAGE = f"node-linux-{ {'x86_64': 'x64', 'aarch64': 'arm64'}.get(platform.machine(), platform.machine()) }"


def installed() -> Path:
    """A directory with the packages."""
    wanted = wanted_packages()
    name = "npm-" + "-".join(package.rpartition("/")[2].replace("@", "-") for package in wanted)
    target = CACHE / name
    if not (target / "node_modules").is_dir():
        draft = CACHE / f".{name}-{os.getpid()}"
        draft.mkdir(parents=True)
        install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *wanted]
        done = subprocess.run(install, cwd=draft, env=clean_environment(), capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        try:
            draft.rename(target)
        except OSError:  # another run was faster
            shutil.rmtree(draft)
    return target


def wanted_packages() -> Sequence[str]:
    """Debian's own Node may be too old for the SDK; npm has newer ones as packages that hold nothing but the program."""
    return PACKAGES if system_node() >= LEAST_NODE else (*PACKAGES, f"{NODE_PACKAGE}@22")


def system_node() -> int:
    shown = subprocess.run(["node", "-p", "process.versions.node"], capture_output=True, text=True, check=True).stdout
    return int(shown.split(".")[0])


def node(modules: Path) -> str:
    packaged = modules / "node_modules" / NODE_PACKAGE / "bin" / "node"
    return str(packaged) if packaged.exists() else "node"


def run(server: Server, modules: Path, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    environment = {**clean_environment(), **server.env, "CI": "1"}
    done = subprocess.run(
        [node(modules), *argv], cwd=modules, env=environment, capture_output=True, text=True, timeout=120,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert not check or done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done


def e2b(modules: Path) -> str:
    """The program of E2B's command line."""
    package = modules / "node_modules" / "@e2b" / "cli"
    entry = next(iter(json.loads((package / "package.json").read_text())["bin"].values()))
    return str(package / entry)
