"""What a tenant of a real server does with builds and WebSockets, in each class of sandboxes: the host and its memory stay whole."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2b import Template
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server

from sandlot.engine.node.runtimes import RUNTIMES

WEBSOCKETS, MESSAGE_MB = 40, 24
MOST_MB = 200  # of the server, for all of them; messages that were held would take 960
# Answers every WebSocket with one message of many megabytes.
FLOOD = f"""
import base64, hashlib, socketserver
class Flood(socketserver.StreamRequestHandler):
    def handle(self):
        key = b""
        while (line := self.rfile.readline().strip()):
            if line.lower().startswith(b"sec-websocket-key:"): key = line.split(b":")[1].strip()
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
                         b"Sec-WebSocket-Accept: " + accept + b"\\r\\n\\r\\n")
        self.wfile.write(b"\\x82\\x7f" + ({MESSAGE_MB} << 20).to_bytes(8, "big"))
        piece = bytes(1 << 16)
        for _ in range({MESSAGE_MB} << 4): self.wfile.write(piece)
class Server(socketserver.ThreadingTCPServer): allow_reuse_address, request_queue_size, daemon_threads = True, 100, True
Server(("0.0.0.0", 8765), Flood).serve_forever()
"""


@pytest.fixture(scope="module", params=tuple(RUNTIMES))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with in_pristine(tmp_path_factory, request.param, pool_size="0", boot_snapshots="0") as running:
        yield running


def memory_mb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmRSS"))


def test_websockets_whose_clients_do_not_read_hold_next_to_nothing(server: Server) -> None:
    with server.create() as sandbox, contextlib.ExitStack() as stack:
        sandbox.files.write("/tmp/flood.py", FLOOD)
        sandbox.commands.run("python3 /tmp/flood.py", background=True)
        sandbox.commands.run("until (echo >/dev/tcp/127.0.0.1/8765) 2>/dev/null; do sleep 0.1; done")
        before = memory_mb(server.pid)
        clients = [stack.enter_context(_websocket(server, sandbox.sandbox_id)) for _ in range(WEBSOCKETS)]
        most, until = before, time.monotonic() + 4
        while time.monotonic() < until:
            most = max(most, memory_mb(server.pid))
            time.sleep(0.1)
        assert most - before < MOST_MB
        received = 0
        while received < MESSAGE_MB << 20:  # who reads gets it all
            received += len(clients[0].recv(1 << 20))


STOP_THE_DAEMON = "import ctypes, time; assert ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0; print('traced', flush=True); time.sleep(600)"


def test_a_sandbox_ends_whose_daemon_was_stopped_by_root_inside(server: Server) -> None:
    sandbox = server.create()
    sandbox.files.write("/tmp/stop.py", STOP_THE_DAEMON)
    with contextlib.suppress(Exception):  # nobody is left to tell how it went
        sandbox.commands.run("python3 /tmp/stop.py", user="root", request_timeout=3, timeout=3)
    with pytest.raises(Exception):  # noqa: B017
        sandbox.commands.run("true", request_timeout=2, timeout=2)
    with server.http() as client:
        assert client.delete(f"/sandboxes/{sandbox.sandbox_id}").status_code == 204
    assert sandbox.sandbox_id not in server.running()


@contextlib.contextmanager
def _websocket(server: Server, sandbox_id: str) -> Iterator[socket.socket]:
    key = base64.b64encode(os.urandom(16)).decode()
    with socket.create_connection(("127.0.0.1", server.port), 60) as connection:
        connection.sendall(
            f"GET / HTTP/1.1\r\nHost: 8765-{sandbox_id}.localhost:{server.port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"E2b-Sandbox-Id: {sandbox_id}\r\nE2b-Sandbox-Port: 8765\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        assert connection.recv(12) == b"HTTP/1.1 101"
        yield connection


def test_a_build_runs_in_the_class_of_sandboxes_and_leads_the_host_nowhere(server: Server, tmp_path: Path) -> None:
    """It sees its class's kernel and nothing of the host's disks; a link that it puts in a directory's place is not followed."""
    precious = tmp_path / "precious"
    (precious / "sandlot-build").mkdir(parents=True)
    (precious / "sandlot-build" / "file").write_text("kept")
    said: list[str] = []
    look = f"echo {tmp_path}; echo named=$(dmesg 2>&1 | grep -c gVisor); cat /proc/cmdline /proc/partitions /proc/diskstats /proc/self/mountinfo; true"
    link = f"mv /run /run.old && ln -s {precious} /run && touch -d 2001-01-01 /old && chown 7:8 /old"
    template = Template().from_base_image().run_cmd(look, user="root").run_cmd(link, user="root")
    Template.build(template, "hostile", on_build_logs=lambda entry: said.append(entry.message), **server.sdk)
    assert (precious / "sandlot-build" / "file").read_text() == "kept"
    log, is_gvisor = "\n".join(said), server.settings["SANDLOT_RUNTIME"] == "gvisor"
    assert ("named=0" not in log) == is_gvisor and "named=" in log
    assert Path("/proc/cmdline").read_text().strip() not in log
    assert str(server.data_dir) not in log or not is_gvisor  # the kernel of the host names the sources of mounts
    partitions = {line.split()[-1] for line in Path("/proc/partitions").read_text().splitlines()[2:]}
    assert not partitions & {line.split()[-1] for line in said if len(line.split()) == 4}
    with server.create("hostile") as sandbox:
        assert sandbox.commands.run("stat -c '%u %g %y' /old").stdout.startswith("7 8 2001-01-01")
