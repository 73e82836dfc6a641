"""Sandboxes that begin with the saved state of a booted one, under gVisor: like any other, and never worse off for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2b import Sandbox
from tests.e2e.conftest import assert_nothing_left, new_server
from tests.e2e.server import Server, until
from tests.e2e.test_forks import fork
from tests.e2e.test_warm_pool import LEFTOVERS, PROCESSES, look, number

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with new_server(tmp_path_factory, "gvisor", pool_size="0") as server:
        yield server
    assert_nothing_left(server)


@pytest.fixture(scope="module")
def booted(server: Server) -> Sandbox:
    return server.create(timeout=600)


def boot_snapshots(server: Server) -> list[Path]:
    return list((server.data_dir / "checkpoints").glob("boot-*"))


def begun_with_one(server: Server, **options: Any) -> Sandbox:
    if not boot_snapshots(server):
        for _ in range(2):
            server.create().kill()
        until(lambda: boot_snapshots(server), 60, "a boot snapshot")
    before = number(server, "sandlot_boot_snapshot_starts_total")
    sandbox = server.create(**options)
    assert number(server, "sandlot_boot_snapshot_starts_total") == before + 1, "it began with the boot snapshot"
    return sandbox


def test_a_sandbox_that_began_with_a_boot_snapshot_is_like_one_that_booted(server: Server, booted: Sandbox) -> None:
    one, two = begun_with_one(server, envs={"GIVEN": "yes"}), begun_with_one(server)
    for sandbox in (booted, one, two):
        seen = look(sandbox)
        assert seen["host"] == seen["file"] == seen["mark"] == sandbox.sandbox_id and seen["hosts"] == "1"
        assert seen["ids"] == f"{sandbox.sandbox_id} base"
    first, second = look(one), look(two)
    for name in ("host", "boot", "random"):
        assert first[name] != second[name]
    assert [each.commands.run("echo $GIVEN").stdout.strip() for each in (one, two)] == ["yes", ""]
    assert sorted(one.commands.run(PROCESSES).stdout.split()) == sorted(booted.commands.run(PROCESSES).stdout.split())
    assert one.commands.run(LEFTOVERS, user="root").stdout == booted.commands.run(LEFTOVERS, user="root").stdout
    script = "import random, uuid; print(random.random(), uuid.uuid4())"
    assert len({each.commands.run(f"python3 -c '{script}'").stdout for each in (one, two)}) == 2
    with server.http() as client:
        log = client.get(f"/sandboxes/{two.sandbox_id}/logs").raise_for_status().text
    assert "true" not in log, "nothing is told of what was before"
    for sandbox in (one, two):
        sandbox.kill()


def test_root_and_users_have_the_same_capabilities_as_in_one_that_booted(server: Server, booted: Sandbox) -> None:
    sandbox = begun_with_one(server)
    for user in ("root", "user"):
        held, expected = (
            each.commands.run("grep ^Cap /proc/self/status", user=user).stdout for each in (sandbox, booted)
        )
        assert held == expected and ("CapEff:\t0000000000000000" in held) is (user == "user")
    sandbox.kill()


def test_it_is_paused_resumed_forked_and_outlives_the_server(server: Server) -> None:
    sandbox = begun_with_one(server, timeout=300)
    sandbox.files.write("/home/user/kept", "1")
    sandbox.commands.run("sleep 1000", background=True)
    sandbox.pause()
    sandbox.connect(timeout=300)
    (child,) = fork(sandbox, [], 1)
    assert child.commands.run("hostname").stdout.strip() == child.sandbox_id
    server.kill_9()
    server.up()
    for each in (sandbox, child):
        assert each.files.read("/home/user/kept") == "1" and "sleep" in str(each.commands.list())
        each.kill()
    begun_with_one(server).kill()  # the boot snapshot is found again


@pytest.mark.parametrize("harm", ["cut short", "overwritten"])
def test_a_damaged_boot_snapshot_costs_time_and_nothing_else(server: Server, harm: str) -> None:
    begun_with_one(server).kill()
    (snapshot,) = boot_snapshots(server)
    largest = max((path for path in snapshot.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    size = largest.stat().st_size
    with largest.open("r+b") as file:
        if harm == "cut short":
            file.truncate(4096)
        else:
            file.write(b"\xff" * size)
    sandbox = server.create()
    assert sandbox.commands.run("echo well").stdout == "well\n"
    assert not boot_snapshots(server)
    sandbox.kill()
    server.down()  # a server that was started anew tries again at once
    server.up()
