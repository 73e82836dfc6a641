"""Greedy sandboxes: memory, processes, disk and CPU run out in that sandbox alone, with a reason people can read."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from e2b import CommandExitException, Sandbox
from e2b.exceptions import NotEnoughSpaceException, SandboxException, TimeoutException
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server, until

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def server(runtime: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With small limits, so that they are hit soon."""
    small = {"sandbox_memory_mb": "256", "sandbox_disk_mb": "128", "sandbox_pids": "200"}
    with in_pristine(tmp_path_factory, runtime, **small) as server:
        yield server


@pytest.fixture(scope="module")
def neighbour(server: Server) -> Iterator[Sandbox]:
    made = server.create(timeout=900)
    yield made
    made.kill()


@pytest.fixture
def greedy(server: Server) -> Iterator[Sandbox]:
    made = server.create(timeout=300)
    yield made
    made.kill()


@contextlib.contextmanager
def undisturbed(server: Server, neighbour: Sandbox) -> Iterator[None]:
    """All the while, the server and another sandbox must answer, in reasonable time."""
    slowest = {"server": 0.0, "neighbour": 0.0}
    failures: list[str] = []
    done = threading.Event()

    def ask() -> None:
        with server.http() as client:
            while not done.is_set():
                began = time.monotonic()
                if client.get("/health").status_code >= 300:
                    failures.append("the server is not healthy")
                slowest["server"] = max(slowest["server"], time.monotonic() - began)
                began = time.monotonic()
                try:
                    assert neighbour.commands.run("echo fine", timeout=20).stdout == "fine\n"
                except Exception as error:
                    failures.append(repr(error))
                slowest["neighbour"] = max(slowest["neighbour"], time.monotonic() - began)
                done.wait(0.1)

    asker = threading.Thread(target=ask)
    asker.start()
    try:
        yield
    finally:
        done.set()
        asker.join(60)
    assert not failures and not asker.is_alive()
    assert slowest["server"] < 10 and slowest["neighbour"] < 20, slowest


def story(server: Server, sandbox: Sandbox) -> list[str]:
    with server.http() as client:
        answer = client.get(f"/v2/sandboxes/{sandbox.sandbox_id}/logs").json()
    return [entry["message"] for entry in answer["logs"]]


HOG = "python3 -c 'x = []\nwhile True: x.append(bytearray(8 << 20))'"


def test_a_process_that_takes_too_much_memory_ends_alone(
    server: Server, greedy: Sandbox, neighbour: Sandbox, runtime: str
) -> None:
    with undisturbed(server, neighbour):
        with pytest.raises(CommandExitException) as caught:
            greedy.commands.run(HOG, timeout=60)
        # The host ends the process that stands for it outside; gVisor tells its parent a plain failure.
        assert caught.value.error == {"container": "signal: killed", "gvisor": "exit status 1"}[runtime]
        assert greedy.commands.run("echo back").stdout == "back\n"
    assert any("out of memory" in line for line in story(server, greedy))


HOGS = "for i in 1 2 3 4 5 6 7 8; do python3 -c 'x = b\"x\" * (60 << 20); import time; time.sleep(60)' & done; wait; echo waited"


def test_processes_that_take_too_much_together_are_told_from_outside(
    server: Server, greedy: Sandbox, neighbour: Sandbox
) -> None:
    """The kernel chooses among a container's processes; gVisor's are one to it, so the sandbox ends and says why."""
    with undisturbed(server, neighbour):
        with contextlib.suppress(CommandExitException, SandboxException):
            greedy.commands.run(HOGS, timeout=8)
        if greedy.is_running():
            assert greedy.commands.run("echo back").stdout == "back\n"
            return
    until(lambda: story(server, greedy)[-1] == "ended: out of memory")
    assert greedy.sandbox_id not in server.running()


FORK_BOMB = "bomb() { bomb | bomb & }; bomb; sleep 30"


def test_a_fork_bomb_stays_inside_and_ends_with_its_command(
    server: Server, greedy: Sandbox, neighbour: Sandbox
) -> None:
    with undisturbed(server, neighbour), pytest.raises((CommandExitException, SandboxException, TimeoutException)):
        greedy.commands.run(FORK_BOMB, timeout=4)
    until(lambda: answers(greedy), 90, "an answer of the sandbox")


def answers(sandbox: Sandbox) -> bool:
    with contextlib.suppress(CommandExitException, SandboxException):
        return sandbox.commands.run("echo back", timeout=15).stdout == "back\n"
    return False


def test_threads_are_limited_as_processes_are(greedy: Sandbox) -> None:
    code = "import threading, time\nfor _ in range(400): threading.Thread(target=time.sleep, args=(3,), daemon=True).start()"
    with pytest.raises(CommandExitException, match="can't start new thread"):
        greedy.commands.run(f'python3 -c "{code}"')


def test_a_full_disk_is_full_inside(server: Server, greedy: Sandbox, neighbour: Sandbox) -> None:
    with undisturbed(server, neighbour):
        with pytest.raises(CommandExitException) as caught:
            greedy.commands.run("dd if=/dev/zero of=/home/user/big bs=1M count=400", timeout=60)
        assert "No space left" in caught.value.stderr
        with pytest.raises(NotEnoughSpaceException):
            greedy.files.write("/home/user/more", b"x" * (8 << 20))
        greedy.commands.run("rm /home/user/big")
        greedy.files.write("/home/user/more", b"x" * (8 << 20))
    used = sum(file.stat().st_blocks * 512 for file in server.data_dir.rglob("*") if file.is_file())
    assert used < 1 << 30


def test_busy_processors_leave_room_for_others(server: Server, greedy: Sandbox, neighbour: Sandbox) -> None:
    with undisturbed(server, neighbour), contextlib.suppress(SandboxException):
        greedy.commands.run("for i in $(seq 20); do (while :; do :; done) & done; sleep 3", timeout=5)
    assert greedy.kill() is True


def test_a_flood_of_output_that_nobody_reads_is_held_back(server: Server, greedy: Sandbox, neighbour: Sandbox) -> None:
    before = memory_of(server)
    headers = {
        "E2b-Sandbox-Id": greedy.sandbox_id, "E2b-Sandbox-Port": "49983",
        "X-Access-Token": greedy._envd_access_token or "", "Content-Type": "application/connect+json",
        "Connect-Protocol-Version": "1",
    }  # fmt: skip
    body = b'{"process":{"cmd":"/usr/bin/yes"}}'
    frame = b"\0" + len(body).to_bytes(4, "big") + body
    with undisturbed(server, neighbour), httpx.Client(trust_env=False, timeout=20) as client:
        url = f"http://127.0.0.1:{server.port}/process.Process/Start"
        with client.stream("POST", url, headers=headers, content=frame) as answer:
            assert answer.status_code == 200
            time.sleep(2)  # the flood needs a moment to pile up somewhere, if it does
            grown = memory_of(server) - before
    assert grown < 100 << 20, f"the server grew by {grown >> 20} MiB"
    assert greedy.commands.run("echo fine").stdout == "fine\n"


def memory_of(server: Server) -> int:
    return int(Path(f"/proc/{server.pid}/statm").read_text().split()[1]) * 4096
