"""The stand-in for sudo in gVisor machines: root for those whom sudoers names, for nobody else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.runtime_host import SERVER, Bench, real_bench

from sandlot.engine.node.images.guest import guest_argv

pytestmark = pytest.mark.usefixtures("private_mounts")


@pytest.fixture
async def machine(tmp_path: Path, layer: Path, guest: Path) -> AsyncIterator[Bench]:
    image = tmp_path / "image"
    (image / "etc" / "sudoers.d").mkdir(parents=True)
    (image / "usr" / "bin").mkdir(parents=True)
    (image / "usr" / "bin" / "sudo").write_text("#!/bin/sh\necho the image's own\n")
    (image / "etc" / "passwd").write_text(
        "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home:/bin/sh\nother:x:1001:1001::/:/bin/sh\n"
    )
    (image / "etc" / "group").write_text("root:x:0:\nuser:x:1000:\nother:x:1001:\n")
    (image / "etc" / "sudoers.d" / "user").write_text("user ALL=(ALL:ALL) NOPASSWD: ALL\n")
    async with real_bench("gvisor", tmp_path, layer, guest) as bench:
        script = f"{' '.join(guest_argv())} & exec {' '.join(SERVER)}"
        await bench.start(("/bin/sh", "-c", script), layers=(layer, image), env={"PATH": "/bin:/usr/bin"})
        await bench.ask("while ! [ -S /run/e2b/sudo.sock ]; do sleep 0.05; done")
        yield bench


async def test_who_may_is_root_with_the_callers_streams_arguments_and_exit_code(machine: Bench) -> None:
    said = await machine.ask("""
        su user -c 'sudo id -u; echo given | sudo cat; sudo -u other id -un; sudo sh -c "exit 7"; echo $?'
        su user -c 'cd /tmp; sudo -n -- sh -c "pwd; echo \\$HOME \\$SUDO_USER \\$1" name "two words"'""")
    assert said.splitlines() == ["0", "given", "other", "7", "/tmp", "/root user two words"]


async def test_who_may_not_is_refused(machine: Bench) -> None:
    said = await machine.ask("su other -c 'sudo id -u; echo $?'")
    assert said == "sudo: other is not in the sudoers file\n1\n"


async def test_nobody_can_claim_to_be_somebody_else(machine: Bench) -> None:
    interpreter = " ".join(guest_argv()[: guest_argv().index("utf8") + 1])
    code = """
import os, socket, struct
for uid in (0, 1000):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect("/run/e2b/sudo.sock"); s.settimeout(5)
    request = b'{"argv": ["id", "-u"], "env": {}, "cwd": "/", "user": "root"}'
    claim = (socket.SOL_SOCKET, 2, struct.pack("3i", os.getpid(), uid, uid))
    try: s.sendmsg([request], [claim, (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("3i", 0, 1, 2))]); print(s.recv(500))
    except OSError as error: print("refused")
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect("/run/e2b/sudo.sock"); s.settimeout(5)
socket.send_fds(s, [request], [0, 1, 2]); print(s.recv(500))
"""
    said = await machine.ask(f"cat >/tmp/claim.py <<'END'\n{code}\nEND\nsu other -c '{interpreter} /tmp/claim.py'")
    assert said.splitlines()[:2] == ["refused", "refused"]
    assert '"error"' in said.splitlines()[2]
    assert "\n0\n" not in said


async def test_what_cannot_be_run_is_named(machine: Bench) -> None:
    said = await machine.ask("su user -c 'sudo no-such-thing; sudo -u nobody-here id; sudo'")
    assert said.splitlines()[:2] == ["sudo: no-such-thing: command not found", "sudo: unknown user nobody-here"]
    assert said.splitlines()[2].startswith("sudo: usage")


async def test_a_signal_reaches_the_command_and_its_end_is_told(machine: Bench) -> None:
    said = await machine.ask(
        "su user -c 'sudo sleep 1000 & sleep 0.7; kill $!; wait $!; echo $?'; ps | grep -c 'sleep 100[0]'"
    )
    assert said.splitlines() == ["143", "0"]


async def test_broken_requests_do_not_end_the_daemon(machine: Bench) -> None:
    interpreter = " ".join(guest_argv()[: guest_argv().index("utf8") + 1])
    await machine.ask(f"""{interpreter} - <<'END'
import socket
for message in (b"", b"x", b"[]", b"null", b'{{"argv": 1}}', b'{{"argv": [], "env": {{}}, "cwd": "/", "user": "root"}}', b'{{"argv": ["id"], "env": {{"a": 1}}, "cwd": "/", "user": "#x"}}'):
    for fds in ([], [0], [0, 1, 2]):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect("/run/e2b/sudo.sock")
        if fds: socket.send_fds(s, [message or b" "], fds)
        else: s.send(message)
        s.settimeout(1)
        try: s.recv(100)
        except OSError: pass
        s.close()
END""")
    assert await machine.ask("su user -c 'sudo id -u'") == "0\n"
