"""Forks and snapshots, seen by the official SDK: children with the parent's state, and everybody's own life after that."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterator

import pytest
from e2b import Sandbox, SandboxException
from tests.e2e.server import Server, until

Fresh = Callable[..., Sandbox]
COUNTER = """
import os, time
n = 0
while True:
    n += 1
    open("/tmp/count.new", "w").write(str(n)); os.rename("/tmp/count.new", "/tmp/count")
    time.sleep(0.02)
"""


def said(sandbox: Sandbox, command: str) -> str:
    return sandbox.commands.run(command).stdout.strip()


@pytest.fixture
def children() -> Iterator[list[Sandbox]]:
    made: list[Sandbox] = []
    yield made
    for child in made:
        child.kill()


@pytest.fixture
def parent(fresh: Fresh) -> Sandbox:
    sandbox = fresh(timeout=300, envs={"GREETING": "hello"})
    sandbox.files.write("/home/user/file", "of the parent")
    sandbox.files.write("/tmp/counter.py", COUNTER)
    sandbox.commands.run("python3 /tmp/counter.py", background=True, timeout=0)
    until(lambda: sandbox.files.exists("/tmp/count"), what="the counter")
    return sandbox


def fork(parent: Sandbox, children: list[Sandbox], count: int) -> list[Sandbox]:
    made = parent.fork(count=count, timeout=300)
    children += [child.sandbox if hasattr(child, "sandbox") else child for child in made]
    return children[-count:]


def test_children_have_the_files_and_under_gvisor_the_memory_of_their_parent(
    server: Server, parent: Sandbox, children: list[Sandbox], runtime: str
) -> None:
    forked = fork(parent, children, 3)
    assert len({child.sandbox_id for child in (parent, *forked)}) == 4
    for child in forked:
        assert child.files.read("/home/user/file") == "of the parent"
        assert said(child, "echo $E2B_SANDBOX_ID") == child.sandbox_id
        before = int(child.files.read("/tmp/count"))
        if runtime == "gvisor":
            until(lambda child=child, before=before: int(child.files.read("/tmp/count")) > before, what="the counter")  # type: ignore[misc]
    ids = {said(child, "cat /proc/sys/kernel/random/boot_id") for child in (parent, *forked)}
    draws = {said(child, "head -c 16 /dev/urandom | od -An -tx1") for child in (parent, *forked)}
    assert len(ids) == len(draws) == 4
    assert server.running()


def test_parent_and_children_live_their_own_lives(parent: Sandbox, children: list[Sandbox]) -> None:
    first, second = fork(parent, children, 2)
    for who, name in ((parent, "parent"), (first, "first"), (second, "second")):
        who.files.write("/home/user/file", name)
    assert [who.files.read("/home/user/file") for who in (parent, first, second)] == ["parent", "first", "second"]
    parent.kill()
    first.pause()
    first.connect(timeout=60)
    assert [who.files.read("/home/user/file") for who in (first, second)] == ["first", "second"]


def test_the_token_of_the_parent_opens_no_child(server: Server, parent: Sandbox, children: list[Sandbox]) -> None:
    (child,) = fork(parent, children, 1)
    headers = {"E2b-Sandbox-Id": child.sandbox_id, "E2b-Sandbox-Port": "49983"}
    with server.http() as client:
        path = "/files?path=/home/user/file&username=user"
        old = parent._envd_access_token
        assert client.get(path, headers={**headers, "X-Access-Token": str(old)}).status_code == 401
        new = child._envd_access_token
        assert client.get(path, headers={**headers, "X-Access-Token": str(new)}).status_code == 200


def test_nothing_of_a_fork_is_kept_besides_its_children(
    server: Server, parent: Sandbox, children: list[Sandbox]
) -> None:
    fork(parent, children, 2)
    assert not list((server.data_dir / "checkpoints").glob("frk*"))


def test_requests_during_a_snapshot_wait_and_are_answered(server: Server, parent: Sandbox) -> None:
    """Every request of a busy client is answered, whenever it comes."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        taking = pool.submit(parent.create_snapshot)
        reads = [pool.submit(lambda: _tolerant_read(server, parent)) for _ in range(30)]
        snapshot = taking.result(60)
        assert {read.result(60) for read in reads} == {"of the parent"}
    assert Sandbox.delete_snapshot(snapshot.snapshot_id, **server.sdk) is True


def _tolerant_read(server: Server, sandbox: Sandbox) -> str:
    # One that was cut in the middle of its answer is repeated, as the SDKs' callers do.
    for _ in range(3):
        try:
            return Sandbox.connect(sandbox.sandbox_id, timeout=60, **server.sdk).files.read("/home/user/file")
        except Exception as error:
            last = error
    raise last


def test_a_snapshot_is_named_listed_created_from_many_times_and_deleted(
    server: Server, parent: Sandbox, children: list[Sandbox], runtime: str
) -> None:
    snapshot = parent.create_snapshot(name="tried")
    listed = Sandbox.list_snapshots(sandbox_id=parent.sandbox_id, **server.sdk).next_items()
    assert [each.snapshot_id for each in listed] == [snapshot.snapshot_id]
    parent.files.write("/home/user/file", "changed since")
    children += [Sandbox.create(snapshot.snapshot_id, timeout=120, **server.sdk) for _ in range(2)]
    assert [child.files.read("/home/user/file") for child in children] == ["of the parent"] * 2
    if runtime == "gvisor":
        assert all("counter.py" in str(child.commands.list()) for child in children)
    again = parent.create_snapshot(name="tried")
    assert len(Sandbox.list_snapshots(sandbox_id=parent.sandbox_id, **server.sdk).next_items()) == 1
    children.append(Sandbox.create("tried", timeout=120, **server.sdk))
    assert children[-1].files.read("/home/user/file") == "changed since"
    assert Sandbox.delete_snapshot(again.snapshot_id, **server.sdk) is True
    assert Sandbox.delete_snapshot(again.snapshot_id, **server.sdk) is False
    assert not list((server.data_dir / "checkpoints").glob("snp*"))
    with pytest.raises(SandboxException, match="not found"):
        Sandbox.create("tried", **server.sdk)


def test_a_snapshot_survives_the_server_killed(start: Callable[..., Server]) -> None:
    server = start()
    parent = server.create(timeout=300)
    parent.files.write("/home/user/file", "of the parent")
    snapshot = parent.create_snapshot()
    server.kill_9()
    server.up()
    assert parent.files.read("/home/user/file") == "of the parent"
    parent.kill()
    child = server.create(snapshot.snapshot_id)
    assert child.files.read("/home/user/file") == "of the parent"
