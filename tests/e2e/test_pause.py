"""Pauses, seen by the official SDK: what survives them, what they free, and what clients are told meanwhile."""

from __future__ import annotations

import concurrent.futures
import json
import os
import select
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from e2b import NotFoundException, PtySize, Sandbox, SandboxException, SandboxState
from tests.e2e import leaks
from tests.e2e.crashes import Crashes
from tests.e2e.server import Server, until

Fresh = Callable[..., Sandbox]
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
# Holds one of everything that a pause could break, and counts.
RESIDENT = """
import ctypes, os, socket, threading, time
kept = open("/tmp/deleted", "w+"); kept.write("content of a deleted file"); kept.flush(); os.unlink("/tmp/deleted")
def serve(listening, answer):
    while True:
        connection, _ = listening.accept()
        with connection:
            answer(connection)
def http(connection):
    connection.recv(4096); kept.seek(0); body = kept.read().encode()
    head = b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body)
    connection.sendall(head + body)
named = socket.socket(socket.AF_UNIX); named.bind("/tmp/named.sock"); named.listen()
web = socket.create_server(("0.0.0.0", 8000))
for listening, answer in ((named, lambda connection: connection.sendall(b"by name")), (web, http)):
    threading.Thread(target=serve, args=(listening, answer), daemon=True).start()
inner = socket.create_server(("127.0.0.1", 8100))
near = socket.create_connection(("127.0.0.1", 8100)); far, _ = inner.accept()
libc = ctypes.CDLL(None); watch = libc.inotify_init1(0); libc.inotify_add_watch(watch, b"/tmp/watched", 0x100)
def watching():
    while True:
        name = os.read(watch, 4096)[16:].rstrip(b"\\0").decode()
        open("/tmp/seen", "a").write(name + "\\n")
threading.Thread(target=watching, daemon=True).start()
n = 0
while True:
    n += 1
    near.sendall(b"x"); assert far.recv(1) == b"x"
    open("/tmp/count.new", "w").write(str(n)); os.rename("/tmp/count.new", "/tmp/count")
    time.sleep(0.02)
"""


def said(sandbox: Sandbox, command: str) -> str:
    return sandbox.commands.run(command).stdout.strip()


def count(sandbox: Sandbox) -> int:
    return int(sandbox.files.read("/tmp/count"))


def detail(server: Server, sandbox: Sandbox) -> dict[str, object]:
    with server.http() as client:
        found: dict[str, object] = client.get(f"/sandboxes/{sandbox.sandbox_id}").json()
        return found


def fetch(server: Server, sandbox: Sandbox, port: int = 8000, timeout: float = 30) -> httpx.Response:
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": str(port)}
    return httpx.get(f"http://127.0.0.1:{server.port}/", headers=headers, timeout=timeout, trust_env=False)


@pytest.fixture
def resident(fresh: Fresh) -> Sandbox:
    """A sandbox in which one process holds one of everything."""
    sandbox = fresh()
    sandbox.files.make_dir("/tmp/watched")
    sandbox.files.write("/tmp/resident.py", RESIDENT)
    sandbox.commands.run("python3 /tmp/resident.py", background=True, timeout=0)
    until(lambda: sandbox.files.exists("/tmp/count"), what="the resident")
    return sandbox


def test_processes_servers_files_and_watches_go_on_after_a_pause(server: Server, resident: Sandbox) -> None:
    boot, watcher = said(resident, BOOT_ID), resident.files.watch_dir("/tmp/watched")
    assert resident.pause() is True
    assert resident.get_info().state == SandboxState.PAUSED
    resident.connect(timeout=120)
    first = count(resident)
    until(lambda: count(resident) > first, what="the count")
    assert fetch(server, resident).text == "content of a deleted file"
    client = (
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/tmp/named.sock'); print(s.recv(99).decode())"
    )
    assert said(resident, f'python3 -c "{client}"') == "by name"
    resident.commands.run("touch /tmp/watched/new")
    until(lambda: "new" in resident.files.read("/tmp/seen"), what="the resident's own watch")
    assert "new" in {event.name for event in watcher.get_new_events()}
    assert said(resident, BOOT_ID) == boot
    assert "resident.py" in str([process.args for process in resident.commands.list()])


def test_a_terminal_goes_on_after_a_pause(fresh: Fresh) -> None:
    sandbox = fresh()
    terminal = sandbox.pty.create(PtySize(rows=24, cols=80), timeout=0)
    sandbox.pty.send_stdin(terminal.pid, b"MARK=kept-in-the-shell\n")
    sandbox.commands.run("sleep 0.3")
    sandbox.pause()
    sandbox.connect(timeout=120)
    written: list[bytes] = []
    again = sandbox.pty.connect(terminal.pid, timeout=0)
    reading = threading.Thread(target=lambda: again.wait(on_pty=lambda data: written.append(bytes(data))), daemon=True)
    reading.start()
    sandbox.pty.send_stdin(terminal.pid, b"echo $MARK; exit 0\n")
    reading.join(60)
    assert b"kept-in-the-shell" in b"".join(written)


def test_a_connection_to_outside_ends_with_an_error_not_with_silence(fresh: Fresh, runtime: str) -> None:
    """Under gVisor; a container keeps its connections, and its peers decide how long they wait."""
    if runtime == "container":
        pytest.skip("a container stands still with its connections")
    sandbox = fresh()
    gateway = said(sandbox, "ip route show default 2>/dev/null | cut -d' ' -f3 || true") or "169.254.0.1"
    program = f"""
import socket
s = socket.create_connection(({gateway!r}, 53), timeout=10); s.settimeout(None)
open("/tmp/connected", "w").close()
try:
    print("got", s.recv(1))
except OSError as error:
    print("error", error.errno)
"""
    sandbox.files.write("/tmp/out.py", program)
    sandbox.files.write("/tmp/out", "")
    command = sandbox.commands.run("python3 /tmp/out.py > /tmp/out 2>&1", background=True, timeout=0)
    until(lambda: sandbox.files.exists("/tmp/connected") or sandbox.files.read("/tmp/out") != "", what="the connection")
    if not sandbox.files.exists("/tmp/connected"):
        pytest.skip("nothing outside takes connections here")
    sandbox.pause()
    sandbox.connect(timeout=120)
    until(lambda: sandbox.files.read("/tmp/out") != "", what="the end of the connection")
    assert sandbox.files.read("/tmp/out").startswith(("error", "got b''"))
    assert command.pid > 0


def test_a_paused_sandbox_under_gvisor_holds_nothing_on_the_host(server: Server, fresh: Fresh, runtime: str) -> None:
    sandbox = fresh()
    names = {sandbox.sandbox_id, server.machine_id(sandbox.sandbox_id)}
    sandbox.pause()
    mine = {line for line in leaks.traces(server.data_dir) if any(name in line for name in names)}
    if runtime == "gvisor":
        assert mine == set()
    else:
        assert any("cgroup" in line for line in mine), "a container is kept where it is"
    assert (server.data_dir / "checkpoints" / sandbox.sandbox_id).is_dir()
    sandbox.connect(timeout=60)
    assert not (server.data_dir / "checkpoints" / sandbox.sandbox_id).exists()
    sandbox.pause()
    sandbox.kill()
    assert not {line for line in leaks.traces(server.data_dir) if any(name in line for name in names)}
    assert not (server.data_dir / "checkpoints" / sandbox.sandbox_id).exists()


def test_files_alone_come_back_on_a_fresh_boot(server: Server, resident: Sandbox) -> None:
    boot = said(resident, BOOT_ID)
    resident.files.write("/home/user/kept", "data")
    resident.commands.run("sudo sh -c 'echo root > /etc/kept'")
    assert resident.pause(keep_memory=False) is True
    assert (detail(server, resident)["state"], detail(server, resident)["pauseMode"]) == ("paused", "filesystem")
    resident.connect(timeout=120)
    assert resident.files.read("/home/user/kept") == "data" and said(resident, "cat /etc/kept") == "root"
    assert said(resident, BOOT_ID) != boot
    assert "resident.py" not in said(resident, "ps -eo args || cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "pauseMode" not in detail(server, resident)


def test_memory_can_be_left_behind_at_the_resume(server: Server, resident: Sandbox) -> None:
    boot = said(resident, BOOT_ID)
    resident.files.write("/home/user/kept", "data")
    resident.pause()
    assert detail(server, resident)["pauseMode"] == "full"
    with server.http() as client:
        answer = client.post(f"/v2/sandboxes/{resident.sandbox_id}/connect", json={"timeout": 60, "memory": False})
        assert answer.status_code == 201
    assert resident.files.read("/home/user/kept") == "data"
    assert said(resident, BOOT_ID) != boot
    last = count(resident)
    time.sleep(0.2)
    assert count(resident) == last


def test_pausing_and_resuming_again_and_again_loses_nothing(resident: Sandbox) -> None:
    resident.commands.run("head -c 3000000 /dev/urandom > /home/user/data; sync")
    checksum, last = said(resident, "sha256sum /home/user/data"), 0
    for round in range(4):
        resident.files.write(f"/home/user/round-{round}", str(round))
        resident.pause()
        resident.connect(timeout=120)
        assert said(resident, "sha256sum /home/user/data") == checksum
        assert [resident.files.read(f"/home/user/round-{n}") for n in range(round + 1)] == [
            str(n) for n in range(round + 1)
        ]
        now = count(resident)
        assert now >= last
        last = now


def test_pausing_twice_says_so_and_connecting_to_a_running_one_is_fine(server: Server, fresh: Fresh) -> None:
    sandbox = fresh()
    with server.http() as client:
        connect = f"/v2/sandboxes/{sandbox.sandbox_id}/connect"
        assert client.post(connect, json={"timeout": 60}).status_code == 200
        assert client.post(f"/sandboxes/{sandbox.sandbox_id}/pause").status_code == 204
        assert client.post(f"/sandboxes/{sandbox.sandbox_id}/pause").status_code == 409
        assert sandbox.pause() is False
        assert client.post(connect, json={"timeout": 60}).status_code == 201
        assert client.post(f"/sandboxes/{sandbox.sandbox_id}/resume", json={}).status_code == 409
    assert Sandbox.get_info(sandbox.sandbox_id, **server.sdk).state == SandboxState.RUNNING


def test_many_who_connect_at_once_get_the_same_running_sandbox(server: Server, resident: Sandbox) -> None:
    resident.pause()
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        connected = list(pool.map(lambda _: Sandbox.connect(resident.sandbox_id, timeout=60, **server.sdk), range(6)))
    assert {one.commands.run("echo yes").stdout for one in connected} == {"yes\n"}


def test_a_timeout_pauses_and_a_request_wakes_once_for_all(server: Server, fresh: Fresh) -> None:
    sandbox = fresh(timeout=60, lifecycle={"on_timeout": "pause", "auto_resume": True})
    assert detail(server, sandbox)["lifecycle"] == {"autoResume": True, "onTimeout": "pause"}
    sandbox.commands.run(
        "cd /tmp && echo awake > index.html && python3 -m http.server 8000", background=True, timeout=0
    )
    until(lambda: fetch(server, sandbox).status_code == 200, what="the web server")
    sandbox.set_timeout(0)
    assert sandbox.get_info().state == SandboxState.PAUSED
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: fetch(server, sandbox), range(8)))
    assert [answer.text for answer in answers] == ["awake\n"] * 8
    assert sandbox.get_info().state == SandboxState.RUNNING


def test_without_auto_resume_a_paused_sandbox_is_not_found_at_its_ports(server: Server, fresh: Fresh) -> None:
    sandbox = fresh()
    sandbox.pause()
    answer = fetch(server, sandbox)
    assert answer.status_code == 502 and "not found" in answer.text
    assert sandbox.is_running() is False
    with pytest.raises((NotFoundException, SandboxException)):
        sandbox.commands.run("true")


def test_a_paused_sandbox_is_listed_until_it_is_killed(server: Server, fresh: Fresh) -> None:
    sandbox = fresh(metadata={"for": "listing-paused"})
    sandbox.pause()

    def listed(state: str) -> list[str]:
        with server.http() as client:
            query = {"state": state, "metadata": "for=listing-paused"}
            return [row["sandboxID"] for row in client.get("/v2/sandboxes", params=query).json()]

    assert (listed("paused"), listed("running")) == ([sandbox.sandbox_id], [])
    with server.http() as client:
        assert client.get(f"/sandboxes/{sandbox.sandbox_id}/metrics").status_code == 200
        assert client.get(f"/sandboxes/{sandbox.sandbox_id}/logs").status_code == 200
    assert sandbox.kill() is True
    assert listed("paused") == []


def test_a_pause_survives_the_server_killed_and_a_clean_restart(start: Callable[..., Server], runtime: str) -> None:
    server = start()
    sandbox = server.create(timeout=300)
    sandbox.files.write("/home/user/kept", "data")
    sandbox.commands.run("sleep 1000", background=True, timeout=0)
    boot = said(sandbox, BOOT_ID)
    sandbox.pause()
    server.kill_9()
    server.up()
    assert server.running() == [sandbox.sandbox_id]
    sandbox.connect(timeout=300)
    assert (sandbox.files.read("/home/user/kept"), said(sandbox, BOOT_ID)) == ("data", boot)
    assert "sleep" in str(sandbox.commands.list())
    assert runtime in ("gvisor", "container")


def _state_files(server: Server, sandbox: Sandbox) -> list[Path]:
    state = server.data_dir / "checkpoints" / sandbox.sandbox_id / "state"
    return sorted((path for path in state.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


@pytest.mark.parametrize("harm", ["truncated", "deleted", "unreadable facts"])
def test_a_damaged_state_is_said_clearly_and_the_sandbox_can_be_killed(
    server: Server, fresh: Fresh, runtime: str, harm: str
) -> None:
    sandbox = fresh()
    sandbox.pause(keep_memory=runtime == "gvisor")
    largest = _state_files(server, sandbox)[-1]
    if harm == "truncated":
        with largest.open("r+b") as file:
            file.truncate(4096)
    elif harm == "deleted":
        largest.unlink()
    else:
        (largest.parents[len(largest.parts) - largest.parts.index("state") - 1] / "checkpoint.json").write_text("{")
    with server.http() as client:
        answer = client.post(f"/v2/sandboxes/{sandbox.sandbox_id}/connect", json={"timeout": 60})
        assert answer.status_code == 409, answer.text
        assert "saved state" in answer.json()["message"] and str(server.data_dir) not in answer.text
    with pytest.raises(SandboxException, match="saved state"):
        sandbox.connect(timeout=60)
    assert detail(server, sandbox)["state"] == "paused"
    assert sandbox.kill() is True
    assert not (server.data_dir / "checkpoints" / sandbox.sandbox_id).exists()


def test_the_disk_that_states_take_is_shown_and_bounded(start: Callable[..., Server]) -> None:
    server = start(checkpoint_disk_gb="1")
    sandbox, other = server.create(timeout=300), server.create(timeout=300)
    other.pause(keep_memory=False)
    status = json.loads(server.cli("status", "--json").stdout)
    assert status["disk"]["checkpoints"] > 100_000
    with server.http() as client:
        metrics = client.get("/metrics").text
        shown = float(
            next(line for line in metrics.splitlines() if line.startswith("sandlot_checkpoint_bytes ")).split()[1]
        )
        assert shown > 100_000
        facts = server.data_dir / "checkpoints" / other.sandbox_id / "checkpoint.json"
        facts.write_text(json.dumps({**json.loads(facts.read_text()), "size_bytes": 1 << 30}))
        answer = client.post(f"/sandboxes/{sandbox.sandbox_id}/pause")
        assert answer.status_code == 429 and "SANDLOT_CHECKPOINT_DISK_GB" in answer.json()["message"]
    assert said(sandbox, "echo still here") == "still here"
    other.kill()
    assert sandbox.pause() is True


@pytest.mark.timeout(400)
def test_a_server_killed_in_the_middle_of_pauses_resumes_snapshots_and_forks_loses_nothing(
    start: Callable[..., Server],
) -> None:
    crashes = Crashes(start(), seed=7)
    crashes.populate(2)
    crashes.run(8)


def test_a_pause_outlives_an_upgrade_of_runsc(start: Callable[..., Server], runtime: str, tmp_path: Path) -> None:
    if runtime != "gvisor":
        pytest.skip("what a container's pause keeps does not depend on the program that ran it")
    installed, later = shutil.which("runsc"), tmp_path / "later" / "runsc"
    assert installed
    server = start(runsc=installed)
    sandbox, other = server.create(timeout=300), server.create(timeout=300)
    for each in (sandbox, other):
        each.commands.run("sleep 1000", background=True, timeout=0)
        each.pause()
    later.parent.mkdir()
    later.write_bytes(Path(installed).read_bytes() + b"\0")  # the same program, told apart by its content
    later.chmod(0o755)
    server.kill_9()
    server.settings = {**server.settings, "SANDLOT_RUNSC": str(later)}
    server.up()
    fresh = server.create(timeout=300)
    assert len(list((server.data_dir / "programs").iterdir())) == 2
    sandbox.connect(timeout=300)
    assert "sleep" in str(sandbox.commands.list())
    sandbox.pause()
    sandbox.connect(timeout=300)
    for program in (server.data_dir / "programs").glob("*/runsc"):
        if program.read_bytes() != later.read_bytes():
            program.unlink()
    with pytest.raises(SandboxException, match="runsc that wrote this state is no longer kept"):
        other.connect(timeout=300)
    assert other.get_info().state == SandboxState.PAUSED
    assert said(fresh, "echo new") == "new" and other.kill() is True


def test_a_container_whose_host_was_restarted_offers_its_files(start: Callable[..., Server], runtime: str) -> None:
    if runtime != "container":
        pytest.skip("under gVisor memory is on the disk")
    server = start()
    sandbox = server.create(timeout=300)
    sandbox.files.write("/home/user/kept", "data")
    boot = said(sandbox, BOOT_ID)
    sandbox.pause()
    server.kill_9()
    _end_machine(server, sandbox.sandbox_id)
    server.up()
    assert detail(server, sandbox)["state"] == "paused"
    with pytest.raises(SandboxException, match="memory=false"):
        sandbox.connect(timeout=60)
    assert detail(server, sandbox)["state"] == "paused"
    sandbox.connect(timeout=60, on_resume="reboot")
    assert sandbox.files.read("/home/user/kept") == "data" and said(sandbox, BOOT_ID) != boot


def _end_machine(server: Server, sandbox_id: str) -> None:
    """What a restart of the host does to a machine: all of its processes end, and its disk is let go."""
    machine_id = server.machine_id(sandbox_id)
    pid = int((server.data_dir / "run" / "container-machines" / f"{machine_id}.pid").read_text())
    assert pid > 1
    pidfd = os.pidfd_open(pid)
    assert machine_id in Path(f"/proc/{pid}/cgroup").read_text()
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    for group in Path("/sys/fs/cgroup").glob(f"**/{machine_id}"):
        for name, text in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
            if (group / name).exists():
                (group / name).write_text(text)
    assert select.select([pidfd], [], [], 20)[0]
    os.close(pidfd)
