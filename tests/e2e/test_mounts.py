"""File systems that root mounts inside: under gVisor its own kernel serves them, also after a pause."""

from __future__ import annotations

import pytest
from e2b import CommandExitException, Sandbox
from tests.e2e.server import Server

MOUNT = "mkdir -p /mnt/t && mount -t tmpfs -o size=1m none /mnt/t && echo kept >/mnt/t/file && cat /mnt/t/file"
# The smallest FUSE server: it answers INIT, then GETATTR of its root, and nothing else.
FUSE = """
import ctypes, os, struct, sys
fd = os.open("/dev/fuse", os.O_RDWR)
os.makedirs("/mnt/f", exist_ok=True)
options = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"none", b"/mnt/f", b"fuse", 0, options):
    sys.exit(os.strerror(ctypes.get_errno()))
print("mounted", flush=True)
while True:
    request = os.read(fd, 1 << 17)
    length, opcode, unique, node = struct.unpack_from("<IIQQ", request)
    if opcode == 26:  # INIT
        body = struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, 0, 12, 9, 4096, 1, 0, 0, 0)
    elif opcode == 3:  # GETATTR
        body = struct.pack("<QII", 1, 0, 0) + struct.pack("<QQQQQQIIIIIIIIII", node, 4711, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, 0, 0, 0, 4096, 0)
    else:
        os.write(fd, struct.pack("<IiQ", 16, -38, unique))
        continue
    os.write(fd, struct.pack("<IiQ", 16 + len(body), 0, unique) + body)
"""


@pytest.mark.timeout(300)
def test_root_mounts_tmpfs_and_fuse_under_gvisor_and_they_survive_a_pause(server: Server, runtime: str) -> None:
    sandbox = server.create()
    try:
        if runtime == "container":
            with pytest.raises(CommandExitException):
                sandbox.commands.run(MOUNT, user="root")
            return
        assert sandbox.commands.run(MOUNT, user="root").stdout == "kept\n"
        sandbox.files.write("/root/fuse.py", FUSE, user="root")
        sandbox.commands.run("python3 /root/fuse.py >/root/fuse.log 2>&1", user="root", background=True, timeout=0)
        sandbox.commands.run("until grep -q . /root/fuse.log; do sleep 0.1; done; cat /root/fuse.log", user="root")
        assert size(sandbox) == "4711"
        sandbox.pause()
        sandbox = Sandbox.connect(sandbox.sandbox_id, **server.sdk)
        assert sandbox.commands.run("cat /mnt/t/file", user="root").stdout == "kept\n" and size(sandbox) == "4711"
    finally:
        sandbox.kill()


def size(sandbox: Sandbox) -> str:
    return sandbox.commands.run("stat -c %s /mnt/f", user="root").stdout.strip()
