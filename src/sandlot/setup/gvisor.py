"""gVisor's runsc: gets a version that is new enough, from the system's packages or from gVisor's own releases."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from sandlot.engine.node.images import archive
from sandlot.setup import packages
from sandlot.setup.packages import Progress, SetupFailed

OLDEST = 20240101  # before this, checkpoints and rootless networking differ from what the runtime relies on
RELEASES = "https://storage.googleapis.com/gvisor/releases/release/latest"
DOCS = "https://gvisor.dev/docs/user_guide/install/"
TARGET = Path("/usr/local/bin/runsc")
_BACKPORTS = Path("/etc/apt/sources.list.d/sandlot-backports.sources")


def version(program: str | None = None) -> int | None:
    """The release date of the installed runsc as a number (20240729), or None if there is none that runs."""
    path = program or packages.found("runsc")
    if path is None:
        return None
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"(20\d{6})", answer)
    return int(match[1]) if match else None


def is_usable() -> bool:
    found = version()
    return found is not None and found >= OLDEST


def install(progress: Progress) -> None:
    """Have a usable runsc. Raises `SetupFailed` if neither packages nor gVisor's releases give one."""
    if os.geteuid() != 0:
        raise SetupFailed(f"gVisor (runsc) must be installed, and only root can do that: run with sudo, or see {DOCS}")
    here = packages.manager()
    if here and here.name == "apt":
        try:
            _install_from_apt(progress)
        except SetupFailed as error:
            progress(str(error).splitlines()[0])
    if not is_usable():
        _install_release(progress)
    if not is_usable():
        raise SetupFailed(f"the runsc that was installed does not run here; see {DOCS}")


def _install_from_apt(progress: Progress) -> None:
    apt = packages.MANAGERS["apt"]
    codename = archive.debian_codename()
    if codename == "bookworm":  # its own runsc is of 2022; the backport is from the archive that apt already uses
        if not _serves_backports():
            debian = archive.of_this_host()
            _BACKPORTS.write_text(debian.entry(debian.main, (f"{codename}-backports",), ("main",)))
        packages.run(apt.refresh, progress, check=False)
        packages.run((*apt.install, f"runsc/{codename}-backports"), progress)
    else:
        packages.run(apt.refresh, progress, check=False)
        packages.run((*apt.install, "runsc"), progress)


def _serves_backports() -> bool:
    return any("bookworm-backports" in source.suites for source in archive.read_sources(Path("/etc/apt")))


def _install_release(progress: Progress) -> None:
    address = f"{RELEASES}/{platform.machine()}/runsc"
    progress(f"downloading gVisor from {address}")
    try:
        program, wanted = _download(address), _download(f"{address}.sha512").split()[0].decode()
    except (OSError, urllib.error.URLError, IndexError) as error:
        raise SetupFailed(f"gVisor could not be downloaded from {address}: {error}. See {DOCS}") from error
    if hashlib.sha512(program).hexdigest() != wanted:
        raise SetupFailed(f"the download of {address} does not match its checksum and was thrown away; try again")
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=TARGET.parent, prefix=".runsc-", delete=False) as file:
        file.write(program)
    Path(file.name).chmod(0o755)
    Path(file.name).rename(TARGET)


def _download(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=60) as answer:
        body: bytes = answer.read(1 << 28)
    return body
