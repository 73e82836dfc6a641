"""A machine with a root shell, in each real runtime, and a secret on the host that it must not see."""

from __future__ import annotations

import secrets
import stat
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.contract.runtime_host import Bench, as_a_server, make_layer, real_bench

from sandlot.engine.core.model import GUEST_MOUNT, Instance
from sandlot.engine.node.images.guest import build_guest, loader
from sandlot.engine.node.runtimes import RUNTIMES

PYTHON = f"{GUEST_MOUNT}/lib/{{loader}} --library-path {GUEST_MOUNT}/lib {GUEST_MOUNT}/bin/python3 -I -S -B"
PRELUDE = """
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(number, *args):
    ctypes.set_errno(0)
    result = libc.syscall(number, *args)
    return result, errno.errorcode.get(ctypes.get_errno(), "")
"""


@dataclass
class Prisoner:
    """A machine whose root does what a test says."""

    bench: Bench
    instance: Instance
    secret: Path
    word: str

    @property
    def runtime(self) -> str:
        return str(self.bench.runtime.name)

    async def sh(self, script: str) -> str:
        return await self.bench.ask(script)

    async def python(self, code: str) -> str:
        return await self.bench.ask(f"{PYTHON.format(loader=loader().name)} - <<'END'\n{PRELUDE}{code}\nEND")


@pytest.fixture(scope="module")
def private_mounts() -> Iterator[None]:
    """For tests that start machines themselves; those that start a server must not be in mounts of their own."""
    with as_a_server():
        yield


@pytest.fixture(scope="session")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_layer(tmp_path_factory.mktemp("layer"))


@pytest.fixture
async def guest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return await build_guest(tmp_path_factory.getbasetemp() / "guests")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(secrets.token_hex(16))
    for parent in (path, *path.parents):  # readable by everybody on the host: only the machine's walls protect it
        if parent.stat().st_uid == 0 and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | (stat.S_IROTH | stat.S_IXOTH))
    return path


@pytest.fixture(params=tuple(RUNTIMES))
async def prisoner(
    request: pytest.FixtureRequest, tmp_path: Path, layer: Path, guest: Path, secret: Path
) -> AsyncIterator[Prisoner]:
    async with real_bench(request.param, tmp_path, layer, guest) as bench:
        yield Prisoner(bench, await bench.start(), secret, secret.read_text())
