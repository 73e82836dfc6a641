"""A private Docker daemon for measurements and tests: own namespaces and directories, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60
COMMAND_TIMEOUT_S = 300
_CGROUPS = Path("/sys/fs/cgroup")

# The daemon writes to more places than the directories it is told (shim sockets, plugin and key directories). In its own
# mount namespace these are covered, so that the host keeps none of it. A network namespace of its own lets it make its
# usual bridge and rules without touching the host's.
_ENTER = """
set -eu
scratch=$1; shift
mount -t tmpfs -o mode=755 none /run
for name in etc opt; do
    mkdir -p "$scratch/$name/upper" "$scratch/$name/work"
    mount -t overlay -o "lowerdir=/$name,upperdir=$scratch/$name/upper,workdir=$scratch/$name/work" overlay "/$name"
done
ip link set lo up
exec "$@"
"""


class DockerUnavailable(Exception):
    """Docker cannot be used on this machine; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Docker:
    """A running daemon, spoken to through Docker's own client."""

    client: str
    socket: Path

    def run(self, *arguments: str) -> str:
        """Run the client and return what it printed. Raises `subprocess.CalledProcessError` with its complaint."""
        done = subprocess.run(
            self.command(*arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=COMMAND_TIMEOUT_S,
        )
        return done.stdout

    def command(self, *arguments: str) -> list[str]:
        return [self.client, "--host", f"unix://{self.socket}", *arguments]

    def import_directory(self, root: Path, tag: str, without: Sequence[str] = ()) -> None:
        """Make an image of a root filesystem, with owners, modes and extended attributes as they are."""
        left_out = [f"--exclude=./{path}" for path in without]
        packing = subprocess.Popen(
            [
                "tar",
                "--create",
                "--numeric-owner",
                "--xattrs",
                "--one-file-system",
                *left_out,
                "--directory",
                str(root),
                ".",
            ],
            stdout=subprocess.PIPE,
        )
        try:
            subprocess.run(
                self.command("import", "-", tag),
                stdin=packing.stdout,
                capture_output=True,
                check=True,
                timeout=COMMAND_TIMEOUT_S,
            )
        finally:
            if packing.stdout:
                packing.stdout.close()
            if packing.wait(timeout=30) != 0:
                raise DockerUnavailable(f"packing {root} for Docker failed: is the directory complete and readable?")

    def versions(self) -> dict[str, str]:
        names = {"docker_client": "{{.Client.Version}}", "docker_server": "{{.Server.Version}}"}
        return {name: self.run("version", "--format", form).strip() for name, form in names.items()}


@contextlib.contextmanager
def private_docker() -> Iterator[Docker]:
    """Start a daemon of our own, yield it, and stop it with all its containers, directories and cgroups."""
    daemon, client = shutil.which("dockerd"), _client()
    if daemon is None or client is None:
        raise DockerUnavailable("dockerd and docker are needed here: apt-get install docker.io")
    if os.geteuid() != 0:
        raise DockerUnavailable("a Docker daemon needs root: run this as root")
    group = f"docker-bench-{secrets.token_hex(3)}"
    scratch = Path(tempfile.mkdtemp(prefix="docker-bench-", dir="/var/tmp"))
    try:
        docker = Docker(client=client, socket=scratch / "socket")
        with _running(_argv(daemon, scratch, group), scratch / "log", docker):
            try:
                yield docker
            finally:
                _remove_containers(docker)
    finally:
        _remove_cgroups(group)
        shutil.rmtree(scratch, ignore_errors=True)


def _client() -> str | None:
    """Debian's own client fits Debian's daemon; a newer one found first on PATH costs time to agree on a version."""
    return "/usr/bin/docker" if Path("/usr/bin/docker").exists() else shutil.which("docker")


def _argv(daemon: str, scratch: Path, group: str) -> list[str]:
    (scratch / "daemon.json").write_text("{}")
    return [
        *("unshare", "--net", "--mount", "--propagation", "private"),
        *("sh", "-c", _ENTER, "sh", str(scratch), daemon),
        *("--config-file", str(scratch / "daemon.json")),
        *("--data-root", str(scratch / "data")),
        *("--exec-root", str(scratch / "exec")),
        *("--pidfile", str(scratch / "pid")),
        *("--host", f"unix://{scratch / 'socket'}"),
        *("--storage-driver", "overlay2"),
        *("--exec-opt", "native.cgroupdriver=cgroupfs"),
        *("--cgroup-parent", f"/{group}"),
    ]


@contextlib.contextmanager
def _running(argv: list[str], log: Path, docker: Docker) -> Iterator[None]:
    with log.open("wb") as out:
        # `unshare` and `sh` replace themselves, so this is the daemon's own pid; its own session keeps a Ctrl-C of the
        # measurement from reaching it before the containers are removed.
        daemon = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    try:
        _await_ready(daemon, log, docker)
        yield
    finally:
        daemon.send_signal(signal.SIGTERM)
        try:
            daemon.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def _await_ready(daemon: subprocess.Popen[bytes], log: Path, docker: Docker) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and daemon.poll() is None:
        with contextlib.suppress(subprocess.CalledProcessError):
            docker.run("version")
            return
        time.sleep(0.1)
    tail = log.read_text(errors="replace")[-1500:]
    raise DockerUnavailable(f"dockerd did not become ready; the end of its log:\n{tail}")


def _remove_containers(docker: Docker) -> None:
    with contextlib.suppress(subprocess.SubprocessError):
        if containers := docker.run("ps", "--all", "--quiet").split():
            docker.run("rm", "--force", *containers)


def _remove_cgroups(group: str) -> None:
    for directory in (*_CGROUPS.glob(f"*/{group}"), _CGROUPS / group):
        with contextlib.suppress(OSError):
            directory.rmdir()
