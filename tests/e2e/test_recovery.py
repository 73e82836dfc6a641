"""Servers that die, and servers that run for long: sandboxes live on, deadlines hold, nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from e2b import AsyncSandbox, Sandbox
from e2b.exceptions import AuthenticationException, SandboxException
from tests.e2e import leaks
from tests.e2e.conftest import Start, in_pristine
from tests.e2e.server import Server, until

pytestmark = pytest.mark.timeout(240)
COUNTER = "n=0; while :; do n=$((n+1)); echo $n > /tmp/count; sleep 0.05; done"


@pytest.fixture(scope="module")
def mortal(runtime: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that is killed again and again, and started again."""
    with in_pristine(tmp_path_factory, runtime, pool_size="0", boot_snapshots="0") as server:
        yield server


def count(sandbox: Sandbox) -> int:
    return int(sandbox.files.read("/tmp/count").strip() or 0)


def test_sandboxes_outlive_a_server_that_is_killed(mortal: Server) -> None:
    server = mortal
    sandboxes = [server.create(timeout=300, metadata={"n": str(n)}, envs={"KEPT": "yes"}) for n in range(3)]
    handle = sandboxes[0].commands.run(COUNTER, background=True, timeout=0)
    until(lambda: sandboxes[0].files.exists("/tmp/count"))
    ends = [sandbox.get_info().end_at for sandbox in sandboxes]
    before = count(sandboxes[0])
    server.kill_9()
    assert leaks.traces(server.data_dir), "machines run on without the server"
    server.up()
    assert sorted(server.running()) == sorted(sandbox.sandbox_id for sandbox in sandboxes)
    until(lambda: count(sandboxes[0]) > before + 10, what="the counter's progress")
    assert handle.pid in {process.pid for process in sandboxes[0].commands.list()}
    assert [sandbox.get_info().end_at for sandbox in sandboxes] == ends
    assert sandboxes[1].commands.run("echo $KEPT").stdout == "yes\n"
    assert [sandbox.get_info().metadata["n"] for sandbox in sandboxes] == ["0", "1", "2"]
    fresh = server.create()
    assert fresh.commands.run("echo new").stdout == "new\n"
    assert all(sandbox.kill() for sandbox in [*sandboxes, fresh])
    until(lambda: not leaks.traces(server.data_dir), what="the end of every trace")


def test_deadlines_hold_while_no_server_runs(mortal: Server) -> None:
    server = mortal
    brief, lasting = server.create(timeout=3), server.create(timeout=300)
    brief_end = brief.get_info().end_at
    server.kill_9()
    until(lambda: datetime.now(UTC) > brief_end, what="its time to pass")
    server.up()
    until(lambda: server.running() == [lasting.sandbox_id], 10)
    assert brief.is_running() is False and lasting.kill() is True
    until(lambda: not any(brief.sandbox_id in trace for trace in leaks.traces(server.data_dir)))


def test_a_sandbox_that_died_meanwhile_is_not_listed(mortal: Server) -> None:
    server = mortal
    dead, alive = server.create(timeout=300), server.create(timeout=300)
    group = next(Path("/sys/fs/cgroup").glob(f"**/sandlot-*/{dead.sandbox_id}"))
    server.kill_9()
    end_group(group, dead.sandbox_id)
    server.up()
    assert server.running() == [alive.sandbox_id]
    assert dead.is_running() is False
    assert alive.commands.run("echo here").stdout == "here\n" and alive.kill() is True


def end_group(group: Path, sandbox_id: str) -> None:
    """End all processes of one machine, as the kernel's OOM killer would."""
    for _ in range(20):
        pids = [int(line) for path in (group, *group.rglob("*")) if path.is_dir() for line in procs(path)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                pidfd = os.pidfd_open(pid)
                if pid > 1 and sandbox_id in Path(f"/proc/{pid}/cgroup").read_text():
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                os.close(pidfd)
        if not pids:
            return
        time.sleep(0.05)


def procs(group: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return (group / "cgroup.procs").read_text().split()
    return []


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_server_killed_amid_creates_leaves_nothing_half_made(mortal: Server, seed: int) -> None:
    server = mortal
    answered: list[str] = []

    def create() -> None:
        with contextlib.suppress(Exception):
            answered.append(server.create(timeout=300, request_timeout=5).sandbox_id)

    askers = [threading.Thread(target=create) for _ in range(8)]
    for asker in askers:
        asker.start()
    time.sleep(random.Random(seed).uniform(0.1, 1.2))
    server.kill_9()
    for asker in askers:
        asker.join()
    server.up()
    listed = server.running()
    assert set(answered) <= set(listed), "what was answered is there"
    for sandbox_id in listed:
        found = Sandbox.connect(sandbox_id, **server.sdk)
        assert found.commands.run("echo whole").stdout == "whole\n"
    known = {f"path {server.data_dir}/sandboxes/{sandbox_id}" for sandbox_id in listed}
    until(lambda: {t for t in leaks.traces(server.data_dir) if "/sandboxes/" in t and t.startswith("path")} == known)
    for sandbox_id in listed:
        assert Sandbox.kill(sandbox_id, **server.sdk) is True
    until(lambda: not leaks.traces(server.data_dir), what="the end of every trace")


async def test_cycles_of_create_and_kill_leave_nothing(mortal: Server, runtime: str) -> None:
    server = mortal
    cycles = {"container": 100, "gvisor": 30}[runtime]

    async def cycle() -> None:
        box = await AsyncSandbox.create(timeout=60, **server.sdk)
        await box.commands.run("echo hi > /tmp/file")
        assert await box.kill() is True

    async def several(number: int) -> None:
        for _ in range(0, number, 5):
            await asyncio.gather(*(cycle() for _ in range(5)))

    await several(10)  # caches and pools fill up first
    until(lambda: not leaks.traces(server.data_dir))
    own = children(server)
    slots, files, memory = len(leaks.slots(server.data_dir)), open_files(server), memory_of(server)
    await several(cycles)
    until(lambda: not leaks.traces(server.data_dir), what="the end of every trace")
    until(lambda: len(leaks.slots(server.data_dir)) == slots, what="as many slots as before")
    until(lambda: open_files(server) <= files + 10, what=f"as many open files as before ({files})")
    assert memory_of(server) - memory < 40 << 20, f"grew by {(memory_of(server) - memory) >> 20} MiB"
    assert children(server) == own and len(own) == 1  # the relays


def open_files(server: Server) -> int:
    """Without user namespaces: one per slot is kept for the next sandbox in that place, and slots are numbered."""
    count = 0
    for file in Path(f"/proc/{server.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += not str(file.readlink()).startswith("user:")
    return count


def memory_of(server: Server) -> int:
    return int(Path(f"/proc/{server.pid}/statm").read_text().split()[1]) * 4096


def children(server: Server) -> list[str]:
    """Processes of the server that outlived the sandboxes they were for."""
    found = []
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        found += (task / "children").read_text().split()
    return found


def test_two_servers_do_not_see_each_other(container_server: Server, tmp_path_factory: pytest.TempPathFactory) -> None:
    one = container_server
    with in_pristine(tmp_path_factory, "container") as two:
        here, there = one.create(), two.create()
        assert here.sandbox_id in one.running() and two.running() == [there.sandbox_id]
        with pytest.raises(SandboxException):
            Sandbox.connect(here.sandbox_id, **two.sdk)
        with pytest.raises(AuthenticationException):
            one.create(api_key=two.key)
    assert here.commands.run("echo still here").stdout == "still here\n" and here.kill() is True


def test_down_ends_sandboxes_unless_they_are_to_be_kept(start: Start) -> None:
    server = start()
    sandbox = server.create(timeout=300)
    sandbox.commands.run(COUNTER, background=True, timeout=0)
    server.down("--keep")
    assert any(sandbox.sandbox_id in trace for trace in leaks.traces(server.data_dir))
    server.up()
    before = count(sandbox)
    until(lambda: count(sandbox) > before)
    server.down()
    assert not leaks.owned(server.data_dir)
    server.up()
    assert server.running() == []
