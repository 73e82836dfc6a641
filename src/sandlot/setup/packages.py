"""Host packages: which programs Sandlot needs, which are missing, and how this system's package manager brings them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import shutil
import socket
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Progress = Callable[[str], None]
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
POLICY = Path("/usr/sbin/policy-rc.d")  # asked by Debian's packages before they start a service
_UNATTENDED = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}


class SetupFailed(Exception):
    """The host could not be prepared; the message says what a person can do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """A package manager: how it is told to install, and what refreshes its lists first."""

    name: str
    install: tuple[str, ...]
    refresh: tuple[str, ...] = ()
    advice: str  # what a person types before the names of packages


MANAGERS = {
    manager.name: manager
    for manager in (
        Manager(
            name="apt",
            refresh=("apt-get", "-o", "DPkg::Lock::Timeout=600", "update"),
            install=(
                *("apt-get", "-o", "DPkg::Lock::Timeout=600", "-o", "Dpkg::Use-Pty=0"),
                *("install", "-y", "--no-install-recommends"),
            ),
            advice="sudo apt-get update && sudo apt-get install -y --no-install-recommends",
        ),
        Manager(name="dnf", install=("dnf", "install", "-y"), advice="sudo dnf install"),
        Manager(name="pacman", install=("pacman", "-Sy", "--noconfirm", "--needed"), advice="sudo pacman -S"),
        Manager(
            name="zypper",
            install=("zypper", "--non-interactive", "install", "--no-recommends"),
            advice="sudo zypper install",
        ),
        Manager(name="apk", install=("apk", "add"), advice="apk add"),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One thing the host must have, and the package that brings it."""

    name: str  # the program, or the path, or "name" and a host name that must resolve, or "library" and one that must load
    why: str
    group: str = "run"
    optional: bool = False
    alternative: str | None = None
    packages: dict[str, str] = field(default_factory=dict)  # by package manager

    def is_met(self) -> bool:
        if self.name.startswith("name "):
            return _resolves(self.name.removeprefix("name "))
        if self.name.startswith("library "):
            return _loads(self.name.removeprefix("library "))
        if self.name.startswith("/"):
            return Path(self.name).exists() or (self.alternative is not None and found(self.alternative) is not None)
        return any(found(name) for name in (self.name, self.alternative) if name)


def search_path() -> str:
    """Where programs are: administrators' directories count even if a user's PATH leaves them out (as after `su`)."""
    given = [each for each in os.environ.get("PATH", "").split(":") if each]
    return ":".join(dict.fromkeys([*given, *SYSTEM_PATH.split(":")]))


def found(program: str) -> str | None:
    return shutil.which(program, path=search_path())


def _resolves(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return False
    return True


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def needs(*groups: str) -> list[Need]:
    table = tomllib.loads(Path(__file__).with_name("packages.toml").read_text())["need"]
    rows = [
        Need(
            name=_name(row),
            why=row["why"],
            group=row.get("group", "run"),
            optional=row.get("optional", False),
            alternative=row.get("alternative"),
            packages={name: row[name] for name in MANAGERS if name in row},
        )
        for row in table
    ]
    return [need for need in rows if need.group in groups]


def _name(row: Mapping[str, Any]) -> str:
    if "library" in row:
        return f"library {row['library']}"
    return row.get("program") or row.get("path") or f"name {row['resolves']}"


def missing(*groups: str) -> list[Need]:
    return [need for need in needs(*groups) if not need.is_met()]


def manager() -> Manager | None:
    """This system's package manager, by the program that is there."""
    programs = {"apt": "apt-get"}
    return next((each for name, each in MANAGERS.items() if found(programs.get(name, name))), None)


def fix(wanted: Sequence[Need]) -> str:
    """What a person would do to get these."""
    here = manager()
    names = _names(wanted, here)
    by_hand = [need for need in wanted if here is None or here.name not in need.packages]
    steps = [f"{here.advice} {' '.join(names)}"] if here and names else []
    if by_hand:
        listed = "; ".join(f"{need.name}, which {need.why}" for need in by_hand)
        how = f"by hand, since {here.name} has no package for it" if here else "with this system's package manager"
        steps.append(f"install {how}: {listed}")
    return "; then ".join(steps)


def _names(wanted: Sequence[Need], here: Manager | None) -> list[str]:
    return (
        list(dict.fromkeys(need.packages[here.name] for need in wanted if here.name in need.packages)) if here else []
    )


def install(wanted: Sequence[Need], progress: Progress) -> None:
    """Install what is missing, by name. Raises `SetupFailed` with the exact command if that cannot be done here."""
    here = manager()
    names = _names(wanted, here)
    if not names or here is None:
        raise SetupFailed(f"cannot install {', '.join(need.name for need in wanted)} here: {fix(wanted)}")
    if os.geteuid() != 0:
        raise SetupFailed(f"{', '.join(names)} must be installed, and only root can do that. Run: {fix(wanted)}")
    if here.refresh:
        progress("reading package lists")
        run(here.refresh, progress, check=False)  # one broken third-party source need not stop us
    with _no_services(here):
        run((*here.install, *names), progress)


@contextlib.contextmanager
def _no_services(here: Manager) -> Iterator[None]:
    """Debian starts the daemons that it installs; only the programs are wanted here (PostgreSQL for tests, say)."""
    if here.name != "apt" or POLICY.exists():
        yield
        return
    # It only counts while this process lives: a leftover forbids nothing.
    POLICY.write_text(f"#!/bin/sh\nif [ -d /proc/{os.getpid()} ]; then exit 101; fi\nexit 0\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)


def run(argv: Sequence[str], progress: Progress, check: bool = True) -> None:
    """Run a system program, telling its lines as progress; the last ones are in the error if it fails."""
    lines: list[str] = []
    child = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **_UNATTENDED},
    )
    assert child.stdout is not None
    with child:
        for line in child.stdout:
            if line.strip():
                lines = [*lines[-14:], line.rstrip()]
                progress(line.strip()[:100])
    if check and child.returncode != 0:
        tail = "\n".join(lines)
        raise SetupFailed(
            f"`{shlex.join(argv)}` failed with status {child.returncode}:\n{tail}\nRepair that and try again"
        )
