"""Idle sandboxes are frozen, seen from both sides: the host sees it, users never do."""

from __future__ import annotations

import base64
import concurrent.futures
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from e2b import Sandbox
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server, until

PATIENT_S = 60


@pytest.fixture(scope="module")
def quick(runtime: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that freezes what is idle after half a second."""
    with in_pristine(tmp_path_factory, runtime, idle_freeze_s="0.5") as server:
        yield server


@pytest.fixture
def idle(quick: Server) -> Iterator[Sandbox]:
    sandbox = quick.create(timeout=600)
    yield sandbox
    sandbox.kill()


def is_frozen(server: Server, sandbox: Sandbox) -> bool:
    """What the kernel says about all processes of the sandbox. A group is named like the machine."""
    for pattern, still in (("freezer/sandlot-*/{}/freezer.state", "FROZEN"), ("sandlot-*/{}/cgroup.freeze", "1")):
        for path in Path("/sys/fs/cgroup").glob(pattern.format(server.machine_id(sandbox.sandbox_id))):
            return path.read_text().strip() == still
    raise AssertionError(f"{sandbox.sandbox_id} has no group")


def until_frozen(server: Server, sandbox: Sandbox) -> None:
    until(lambda: is_frozen(server, sandbox), PATIENT_S, "freezing")


def stays_thawed(server: Server, sandbox: Sandbox, seconds: float = 2.5) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if is_frozen(server, sandbox):
            return False
        time.sleep(0.02)
    return True


def used(server: Server, sandbox: Sandbox) -> dict[str, float]:
    with server.http() as client:
        last: dict[str, float] = client.get(f"/sandboxes/{sandbox.sandbox_id}/metrics").json()[-1]
        return last


def test_metrics_of_a_frozen_sandbox_are_those_of_its_last_use(quick: Server, idle: Sandbox) -> None:
    until_frozen(quick, idle)
    before = used(quick, idle)
    idle.commands.run("head -c 40000000 /dev/urandom > /dev/shm/big")
    until_frozen(quick, idle)
    after = used(quick, idle)
    assert after["memUsed"] > before["memUsed"] + 30_000_000
    assert is_frozen(quick, idle), "looking does not wake it"
    assert after["timestampUnix"] >= before["timestampUnix"]
    until(lambda: used(quick, idle)["cpuUsedPct"] == 0, PATIENT_S, "a look at a time without use")


def test_an_idle_sandbox_is_frozen_and_answers_as_if_it_had_not(quick: Server, idle: Sandbox) -> None:
    idle.commands.run("echo kept > /tmp/file; true")
    watch = idle.files.watch_dir("/tmp")
    until_frozen(quick, idle)
    with quick.http() as client:
        assert client.get(f"/sandboxes/{idle.sandbox_id}").json()["state"] == "running"
        assert client.get(f"/sandboxes/{idle.sandbox_id}/metrics").json()[-1]["memUsed"] > 0
        assert "sandlot_frozen_sandboxes 1.0" in client.get("/metrics").text
    assert is_frozen(quick, idle)
    before = time.time()
    clock = float(idle.commands.run("date +%s.%N").stdout)
    assert before - 1 < clock < time.time() + 1
    idle.files.write("/tmp/new", "x")
    until(lambda: any(event.name == "new" for event in watch.get_new_events()), PATIENT_S, "an event of the watch")
    assert idle.files.read("/tmp/file") == "kept\n"


def test_its_clocks_go_on_while_it_is_frozen(quick: Server, idle: Sandbox) -> None:
    command = "python3 -c 'import time; print(time.monotonic(), time.time())'"
    first = [float(word) for word in idle.commands.run(command).stdout.split()]
    until_frozen(quick, idle)
    time.sleep(3)
    second = [float(word) for word in idle.commands.run(command).stdout.split()]
    monotonic, wall = second[0] - first[0], second[1] - first[1]
    assert monotonic > 3 and abs(monotonic - wall) < 1.5


def test_what_the_user_left_running_keeps_it_awake(quick: Server, idle: Sandbox) -> None:
    idle.commands.run("(setsid sleep 300 >/dev/null 2>&1 &) ; true")
    assert stays_thawed(quick, idle)
    idle.commands.run("pkill sleep; true")
    until_frozen(quick, idle)


def test_a_terminal_or_a_command_nobody_listens_to_keeps_it_awake(quick: Server, idle: Sandbox) -> None:
    command = idle.commands.run("sleep 300", background=True)
    command.disconnect()
    assert stays_thawed(quick, idle)
    idle.commands.kill(command.pid)
    until_frozen(quick, idle)


def test_an_open_connection_keeps_it_awake(quick: Server, idle: Sandbox) -> None:
    """A watch that streams has no process of its own."""
    user = base64.b64encode(b"user:").decode()
    body = b'{"path": "/tmp"}'
    headers = {
        "E2b-Sandbox-Id": idle.sandbox_id,
        "E2b-Sandbox-Port": "49983",
        "X-Access-Token": str(idle._envd_access_token),
        "Authorization": f"Basic {user}",
        "Content-Type": "application/connect+json",
        "Connect-Protocol-Version": "1",
    }
    envelope = b"\0" + len(body).to_bytes(4, "big") + body
    with (
        httpx.Client(base_url=f"http://127.0.0.1:{quick.port}", timeout=60, trust_env=False) as client,
        client.stream("POST", "/filesystem.Filesystem/WatchDir", headers=headers, content=envelope) as stream,
    ):
        assert stream.status_code == 200
        events = stream.iter_raw()
        assert b"start" in next(events)
        assert stays_thawed(quick, idle)
    until_frozen(quick, idle)


def test_many_requests_at_the_moment_of_freezing_are_all_answered(quick: Server, idle: Sandbox) -> None:
    def ask(number: int) -> str:
        time.sleep(number * 0.073 % 1.7)
        return idle.files.read("/etc/hostname")

    with concurrent.futures.ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(ask, range(36)))
    assert len(set(answers)) == 1 and answers[0]


def test_it_can_be_paused_copied_and_killed_where_it_stands(quick: Server, idle: Sandbox) -> None:
    idle.files.write("/home/user/kept", "data")
    until_frozen(quick, idle)
    snapshot = idle.create_snapshot()
    until_frozen(quick, idle)
    idle.pause()
    idle.connect(timeout=300)
    assert idle.files.read("/home/user/kept") == "data"
    until_frozen(quick, idle)
    idle.kill()
    copy = quick.create(snapshot.snapshot_id)
    assert copy.files.read("/home/user/kept") == "data"
    copy.kill()
    with quick.http() as client:
        client.delete(f"/templates/{snapshot.snapshot_id}")


def test_a_server_that_was_killed_takes_over_what_it_had_frozen(quick: Server, idle: Sandbox) -> None:
    idle.files.write("/home/user/kept", "data")
    until_frozen(quick, idle)
    quick.kill_9()
    assert is_frozen(quick, idle)
    quick.up()
    assert idle.files.read("/home/user/kept") == "data"
    until_frozen(quick, idle)
