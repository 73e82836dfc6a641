"""Real services for tests: each is a context manager that starts one on a free loopback port and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.ports import free_port

START_LIMIT_S = 60.0
STOP_LIMIT_S = 20.0


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """A PostgreSQL server of its own; yields the address of an empty database."""
    binaries = _postgresql_binaries()
    home = Path(tempfile.mkdtemp(prefix="sandlot-test-postgresql-"))
    password = "p@ss/w:rd-of-the-tests"  # characters that have to be quoted in an address
    try:
        port = free_port()
        _prepare(binaries, home, password)
        with _running(binaries, home, port):
            yield f"postgresql://tests:p%40ss%2Fw%3Ard-of-the-tests@127.0.0.1:{port}/postgres"
    finally:
        shutil.rmtree(home)


def _postgresql_binaries() -> Path:
    found = _installed_postgresql()
    if found is None:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        lock = ["-o", "DPkg::Lock::Timeout=300"]
        subprocess.run(["apt-get", *lock, "update", "-qq"], check=True, env=environment)
        # Without this the package would create and start a server of its own.
        settings = Path("/etc/postgresql-common/createcluster.conf")
        settings.parent.mkdir(parents=True, exist_ok=True)
        if not settings.exists():
            settings.write_text("create_main_cluster = false\n")
        subprocess.run(
            [
                "apt-get",
                *lock,
                "-o",
                "Dpkg::Options::=--force-confold",
                "install",
                "-y",
                "-qq",
                "--no-install-recommends",
                "postgresql",
            ],
            check=True,
            env=environment,
        )
        found = _installed_postgresql()
    assert found is not None, "PostgreSQL is not installed and could not be installed (package `postgresql`)"
    return found


def _installed_postgresql() -> Path | None:
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    return versions[-1].parent if versions else None


def _prepare(binaries: Path, home: Path, password: str) -> None:
    account = _account()
    shutil.chown(home, account, account)
    secret = home / "password"
    secret.write_text(password)
    shutil.chown(secret, account, account)
    options = [
        "-U",
        "tests",
        "-A",
        "scram-sha-256",
        "--pwfile",
        str(secret),
        "--no-sync",
        "--locale=C.UTF-8",
        "-E",
        "UTF8",
    ]
    subprocess.run(
        [*_as(account), str(binaries / "initdb"), "-D", str(home / "data"), *options],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd=home,
        env=_clean_environment(),
    )


@contextlib.contextmanager
def _running(binaries: Path, home: Path, port: int) -> Iterator[None]:
    settings = {
        "port": str(port),
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "fsync": "off",
        "log_min_messages": "fatal",
    }
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    with (home / "log").open("wb") as log:
        server = subprocess.Popen(
            [*_as(_account()), str(binaries / "postgres"), "-D", str(home / "data"), *options],
            stdout=log,
            stderr=log,
            cwd=home,
            env=_clean_environment(),
        )
    try:
        _wait_for_port(server, port, home / "log")
        yield
    finally:
        # SIGINT is PostgreSQL's fast shutdown: it ends its own children.
        server.send_signal(signal.SIGINT)
        try:
            server.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait_for_port(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError(f"PostgreSQL did not start:\n{log.read_text()}")


def _as(account: str) -> list[str]:
    """The command prefix that runs the rest as `account`; setpriv replaces itself, so the pid stays the server's."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={account}", f"--regid={account}", "--clear-groups", "--"]


def _account() -> str:
    """PostgreSQL refuses to run as root."""
    return "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name


def _clean_environment() -> dict[str, str]:
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "TZ": "UTC"}
