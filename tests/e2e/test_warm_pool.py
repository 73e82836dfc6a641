"""Sandboxes that stood ready before anybody asked: like fresh ones in everything but the wait."""

from __future__ import annotations

import concurrent.futures
import os
import re
import signal
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from e2b import Sandbox, Template
from e2b.exceptions import SandboxException
from tests.e2e import leaks
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server, until

pytestmark = pytest.mark.timeout(300)
SIZE = 2
# What a program inside can look at: identity, time, processes, what was ever written.
LOOK = """
hostname; cat /etc/hostname; grep -c "$(hostname)" /etc/hosts; cat /proc/sys/kernel/random/boot_id
echo "$E2B_SANDBOX_ID $E2B_TEMPLATE_ID"; cat /run/e2b/.E2B_SANDBOX_ID; echo
date +%s; head -c 16 /dev/urandom | od -An -tx1 | tr -d ' '
"""
PROCESSES = "cat /proc/[0-9]*/comm"
LEFTOVERS = "find / -xdev -newer /etc/debian_version -type f -not -path '/proc/*' -not -path '/sys/*' -not -path '/run/e2b/*' 2>/dev/null | sort"


@pytest.fixture(scope="module")
def pooled(runtime: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with in_pristine(tmp_path_factory, runtime, pool_size=str(SIZE)) as server:
        server.create().kill()
        yield server


def number(server: Server, name: str) -> int:
    with server.http() as client:
        found = re.findall(rf"^{name}(?:{{.*}})? (\d+)", client.get("/metrics").text, re.MULTILINE)
    return sum(map(int, found))


def full(server: Server, size: int = SIZE) -> None:
    until(lambda: number(server, "sandlot_warm_pool_ready") >= size, 60, "a full pool")


def ready_made(server: Server, **options: Any) -> Sandbox:
    """A sandbox that stood ready."""
    full(server)
    before = number(server, "sandlot_warm_pool_hits_total")
    sandbox = server.create(**options)
    assert number(server, "sandlot_warm_pool_hits_total") == before + 1, "it came from the pool"
    return sandbox


def look(sandbox: Sandbox) -> dict[str, str]:
    names = ("host", "file", "hosts", "boot", "ids", "mark", "time", "random")
    return dict(zip(names, sandbox.commands.run(LOOK).stdout.split("\n"), strict=False))


def test_a_sandbox_that_stood_ready_is_like_a_fresh_one(pooled: Server, server: Server) -> None:
    fresh, one, two = server.create(), ready_made(pooled), ready_made(pooled)
    with pooled.http() as client:
        log = client.get(f"/sandboxes/{one.sandbox_id}/logs").raise_for_status().text
    assert "running" in log and "process" not in log, "nothing is told of what was before"
    for sandbox in (fresh, one, two):
        seen, identity = look(sandbox), sandbox.sandbox_id
        assert seen["host"] == seen["file"] == identity and seen["hosts"] == "1" and seen["mark"] == identity
        assert seen["ids"] == f"{identity} base"
        assert abs(int(seen["time"]) - datetime.now(UTC).timestamp()) < 30
        uuid.UUID(seen["boot"])
    first, second = look(one), look(two)
    for name in ("host", "boot", "random"):
        assert first[name] != second[name]
    assert sorted(one.commands.run(PROCESSES).stdout.split()) == sorted(fresh.commands.run(PROCESSES).stdout.split())
    assert one.commands.run(LEFTOVERS, user="root").stdout == fresh.commands.run(LEFTOVERS, user="root").stdout
    script = "import random, uuid; print(random.random(), uuid.uuid4())"
    told = [each.commands.run(f"python3 -c '{script}'").stdout for each in (one, two)]
    assert told[0] != told[1]
    info = one.get_info()
    assert info.template_id == "base" and abs((datetime.now(UTC) - info.started_at).total_seconds()) < 60
    for sandbox in (fresh, one, two):
        sandbox.kill()


def test_what_the_caller_asked_for_holds_from_the_first_moment(pooled: Server) -> None:
    sandbox = ready_made(
        pooled, envs={"GIVEN": "yes"}, metadata={"owner": "me"}, timeout=77, allow_internet_access=False, secure=True
    )
    refused = sandbox.commands.run("curl -sS -m 5 -o /dev/null http://192.0.2.1/ 2>&1; echo $?; echo $GIVEN").stdout
    assert refused.split()[-2:] == ["7", "yes"], refused  # refused at once, not timed out
    info = sandbox.get_info()
    assert info.metadata == {"owner": "me"} and 60 < (info.end_at - info.started_at).total_seconds() <= 78
    with pytest.raises(SandboxException), pooled.http() as client:
        bare = client.get(
            "/files?path=/etc/hostname", headers={"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}
        )
        assert bare.status_code in (401, 403), bare.text
        raise SandboxException("refused, as it should be")
    sandbox.kill()


def test_an_unsecured_sandbox_can_come_from_the_pool(pooled: Server) -> None:
    sandbox = ready_made(pooled, secure=False)
    assert sandbox.commands.run("echo open").stdout == "open\n"
    sandbox.kill()


def test_many_at_once_all_get_a_machine_of_their_own(pooled: Server) -> None:
    full(pooled)
    with concurrent.futures.ThreadPoolExecutor(6) as threads:
        made = list(threads.map(lambda _: pooled.create(), range(6)))
        names = list(threads.map(lambda each: each.commands.run("hostname").stdout.strip(), made))
    assert names == [each.sandbox_id for each in made] and len(set(names)) == 6
    assert sorted(pooled.running()) == sorted(names), "only sandboxes that somebody asked for are listed"
    for each in made:
        each.kill()


def test_it_pauses_resumes_forks_and_ends_like_any_other(pooled: Server) -> None:
    sandbox = ready_made(pooled)
    sandbox.files.write("/home/user/kept", "1")
    sandbox.commands.run("sleep 1000", background=True)
    boot = look(sandbox)["boot"]
    sandbox.pause()
    sandbox.connect()
    assert sandbox.files.read("/home/user/kept") == "1" and look(sandbox)["boot"] == boot
    assert "sleep" in sandbox.commands.run(PROCESSES).stdout
    with pooled.http() as client:
        (child,) = client.post(f"/sandboxes/{sandbox.sandbox_id}/fork", json={"count": 1, "timeout": 60}).json()
    forked = Sandbox.connect(child["sandbox"]["sandboxID"], timeout=60, **pooled.sdk)
    assert forked.files.read("/home/user/kept") == "1" and look(forked)["boot"] != boot
    for each in (sandbox, forked):
        seen = look(each)
        assert seen["host"] == seen["file"] == each.sandbox_id and seen["hosts"] == "1", "each has a name of its own"
    for each in (sandbox, forked):
        names = {each.sandbox_id, pooled.machine_id(each.sandbox_id)}
        assert each.kill() is True
        until(lambda gone=names: not any(name in trace for name in gone for trace in leaks.traces(pooled.data_dir)))  # type: ignore[misc]


def test_a_server_killed_with_a_full_pool_starts_over_and_leaves_nothing(pooled: Server) -> None:
    sandbox = ready_made(pooled)
    full(pooled)
    pooled.kill_9()
    before = {trace for trace in leaks.traces(pooled.data_dir) if trace.startswith("path") and "/sandboxes/" in trace}
    assert len(before) > SIZE
    pooled.up()
    names = {sandbox.sandbox_id, pooled.machine_id(sandbox.sandbox_id)}
    mine = {f"path {pooled.data_dir}/sandboxes/{name}" for name in names}
    after = {trace for trace in leaks.traces(pooled.data_dir) if trace.startswith("path") and "/sandboxes/" in trace}
    assert after == mine and len(mine) == 2, "what nobody has is gone; what somebody has is not"
    assert sandbox.commands.run("echo alive").stdout == "alive\n"
    sandbox.kill()
    pooled.create().kill()
    full(pooled)
    pooled.down()
    assert not leaks.owned(pooled.data_dir)
    pooled.up()


def test_a_machine_that_dies_in_the_pool_is_not_leased(pooled: Server) -> None:
    pooled.create().kill()
    full(pooled)
    victim = sorted(pooled.warm())[0]
    (pid,) = (pooled.data_dir / "run").glob(f"*-machines/{victim}.pid")
    process = int(pid.read_text())
    assert process > 1 and f"/{victim}" in Path(f"/proc/{process}/cgroup").read_text()
    os.kill(process, signal.SIGKILL)  # a v1 group that is frozen lets it end when it is thawed or freed
    made = [pooled.create() for _ in range(SIZE)]
    assert all(each.commands.run("echo alive").stdout == "alive\n" for each in made)
    for each in made:
        each.kill()


def test_a_template_that_is_built_again_or_deleted_has_nothing_in_store(pooled: Server) -> None:
    name = f"stored-{uuid.uuid4().hex[:8]}"
    options = {key: pooled.sdk[key] for key in ("api_key", "api_url", "domain")}
    for text in ("one", "two"):
        Template.build(Template().from_template("base").run_cmd(f"echo {text} > /tmp/text"), name, **options)
        made = pooled.create(name)
        assert made.files.read("/tmp/text").strip() == text
        made.kill()
        until(lambda: _with_steps(pooled) >= SIZE, 60, "machines of this template in store")
    with pooled.http() as client:
        assert client.delete(f"/templates/{name}").status_code == 204, "what stands ready is no use of a template"
    until(lambda: not _with_steps(pooled), 60, "the end of warm machines, and of the one being started")


def _with_steps(server: Server) -> int:
    """Machines that need a layer which a step of a build made."""
    records = [path.read_text() for path in (server.data_dir / "sandboxes").glob("*/machine.json")]
    return sum(bool(re.search(r'"s[0-9a-f]{20}"', record)) for record in records)
