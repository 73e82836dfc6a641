"""The guest runtime, in a root filesystem that has nothing else."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2b import Sandbox
from tests.guest.running import TOKEN, Envd

from sandlot.engine.node.images.guest import GUEST_MOUNT, base_python, build_guest, guest_argv

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="making a root filesystem takes root")


def _pythons() -> list[Path]:
    """The server's own, and the distribution's if it is of the same version."""
    system = Path(f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}")
    return list(dict.fromkeys([base_python(), *([system.resolve()] if system.exists() else [])]))


@pytest.fixture(scope="module", params=_pythons(), ids=str)
def guest(request: pytest.FixtureRequest) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="guest-") as directory:
        yield asyncio.run(build_guest(Path(directory), request.param))


@pytest.fixture(scope="module")
def bare_envd(guest: Path) -> Iterator[Envd]:
    """envd as process 1 of a root filesystem with no program, no library and no passwd file."""
    with tempfile.TemporaryDirectory(prefix="root-") as directory:
        root = Path(directory)
        for name in ("proc", "dev", GUEST_MOUNT[1:]):
            (root / name).mkdir()
        (root / "dev" / "null").touch()
        script = f"""
        set -e
        cd {shlex.quote(str(root))}
        mount --bind {shlex.quote(str(guest))} .{GUEST_MOUNT}
        mount -o remount,ro,bind .{GUEST_MOUNT}
        mount -t proc proc proc
        mount --bind /dev/null dev/null
        exec env -i "$(command -v chroot || echo /usr/sbin/chroot)" . {shlex.join(guest_argv("--host", "127.0.0.1", "--port", "0"))}
        """
        command = [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--propagation",
            "private",
            "sh",
            "-c",
            script,
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        assert "listens on" in line
        port = int(line.rsplit(":", 1)[1])
        first = Envd(port, process.pid, "", root, root)
        assert first.init(accessToken=TOKEN) == 204
        yield Envd(port, process.pid, TOKEN, root, root)
        process.kill()
        process.wait(timeout=60)
        process.stdout.close()


def test_everything_works_without_an_image(bare_envd: Envd) -> None:
    sandbox = Sandbox(**bare_envd.options())  # type: ignore[arg-type]
    sandbox.files.write("/work/f.txt", "text", gzip=True)
    assert sandbox.files.read("/work/f.txt", gzip=True) == "text"
    assert [entry.owner for entry in sandbox.files.list("/work", depth=2)] == ["0"]
    watcher = sandbox.files.watch_dir("/work", recursive=True)
    watcher.stop()
    sandbox.files.remove("/work")
    assert bare_envd.request("GET", "/metrics")[0] == 200


def test_the_program_of_a_command_comes_from_the_image(bare_envd: Envd) -> None:
    import json
    import struct

    def start(argv: list[str]) -> bytes:
        body = json.dumps({"process": {"cmd": argv[0], "args": argv[1:]}, "stdin": False}).encode()
        frame = struct.pack(">BI", 0, len(body)) + body
        headers = {"Content-Type": "application/connect+json"}
        return bare_envd.request("POST", "/process.Process/Start", frame, headers)[2]

    assert b"No such file or directory" in start(["/bin/bash", "-c", "true"])
    # The only program there is: the guest runtime's own interpreter.
    program = [*guest_argv()[:-1], "-c", "import os; print(sorted(os.environ))"]
    assert b'"status":"exit status 0"' in start(program)


async def test_the_same_runtime_is_built_once(tmp_path: Path) -> None:
    first = await build_guest(tmp_path)
    marker = first / "marker"
    marker.touch()
    assert await build_guest(tmp_path) == first
    assert marker.exists()
    assert [path.name for path in tmp_path.iterdir()] == [first.name]
