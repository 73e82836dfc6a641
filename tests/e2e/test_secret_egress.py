"""Secrets at the door, with the released SDKs: requests leave with the value, and the value is nowhere inside or in clear."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2b import Sandbox, Secret
from tests.e2e import npm
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server
from tests.network import world as outside

pytestmark = pytest.mark.timeout(300)
CANARY = "canary-90d1e55c"
URL = "https://www.example.com/quiet"
RULES = {"www.example.com": [{"transform": {"headers": {"Authorization": f"Bearer {Secret.fill('API-token')}"}}}]}
CLIENTS = {
    "curl": f"curl -sS {URL}/curl",
    "python": f"python3 -c 'import urllib.request as u; print(u.urlopen(\"{URL}/python\").read().decode())'",
    "node": f"node -e 'fetch(\"{URL}/node\").then((r) => r.text()).then(console.log)'",
    "git": f"git ls-remote {URL}/git; echo ok",
}
# Looks for a word in the memory of all processes that it may read, in their variables and arguments. The word comes backwards.
SEARCH = """
import glob, sys
word = sys.argv[1][::-1].encode()
found = []
for place in glob.glob("/proc/[0-9]*"):
    for name in ("environ", "cmdline"):
        try:
            if word in open(f"{place}/{name}", "rb").read():
                found.append(f"{place}/{name}")
        except OSError:
            pass
    try:
        maps, memory = open(f"{place}/maps").read().splitlines(), open(f"{place}/mem", "rb", 0)
    except OSError:
        continue
    for line in maps:
        span, rights = line.split()[:2]
        start, end = (int(part, 16) for part in span.split("-"))
        if "r" not in rights or end - start > 1 << 28 or "[v" in line:
            continue
        try:
            memory.seek(start)
            if word in memory.read(end - start) and "self" not in place and place != f"/proc/{__import__('os').getpid()}":
                found.append(f"{place}: {line}")
        except (OSError, ValueError):
            pass
print(found)
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[outside.World]:
    with outside.one_world_at_a_time():
        built = outside.World(tmp_path_factory.mktemp("world"))
        try:
            built.build()
            yield built
        finally:
            built.remove()


@pytest.fixture(scope="module")
def server(world: outside.World, runtime: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Its relays, and programs inside, trust the world's certificate, as a company's own."""
    file = tmp_path_factory.mktemp("trust") / "world.pem"
    file.write_text(world.authority)
    settings = {"dns_servers": outside.DNS, "guest_ca_file": str(file), "pool_size": "1"}
    with in_pristine(tmp_path_factory, runtime, **settings) as server:
        Secret.create("api-Token", CANARY, **server.sdk)
        yield server


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    made = server.create(timeout=900, network={"rules": RULES})
    yield made
    made.kill()


def asked(path: str) -> dict[str, str]:
    """The headers of the last request for a path below /quiet."""
    return next(headers for seen, headers in reversed(outside.Web.seen) if seen.startswith(f"/quiet/{path}"))


@pytest.mark.parametrize("client", CLIENTS)
def test_programs_leave_with_the_secret_without_being_told(sandbox: Sandbox, client: str) -> None:
    for user in ("user", "root"):
        outside.Web.seen.clear()
        done = sandbox.commands.run(CLIENTS[client], user=user, timeout=60)
        assert done.stdout.endswith("ok\n") or done.stdout == "ok", done
        assert asked(client)["authorization"] == f"Bearer {CANARY}"


def test_the_value_is_nowhere_inside(sandbox: Sandbox) -> None:
    keeper = (
        f"import time, urllib.request as u; u.urlopen('{URL}/kept').read(); print('done', flush=True); time.sleep(60)"
    )
    sandbox.files.write("/tmp/keeper.py", keeper)
    sandbox.files.write("/tmp/search.py", SEARCH)
    running = sandbox.commands.run("python3 /tmp/keeper.py", background=True, timeout=0)
    try:
        assert next(iter(running))[0] == "done\n" and asked("kept")["authorization"].endswith(CANARY)
        found = sandbox.commands.run(f"python3 /tmp/search.py {CANARY[::-1]}", user="root", timeout=120).stdout
        assert found == "[]\n"
        places = "/etc /home /root /tmp /run /var /opt /usr/local"
        files = sandbox.commands.run(
            f"echo {CANARY[::-1]} | rev | xargs -I@ grep -rlF @ {places} || true", user="root", timeout=120
        )
        assert files.stdout == ""
    finally:
        running.kill()


def test_the_value_is_nowhere_in_clear_outside(sandbox: Sandbox, server: Server) -> None:
    sandbox.commands.run(CLIENTS["curl"])
    with server.http() as client:
        info: Any = client.get(f"/sandboxes/{sandbox.sandbox_id}").json()
        listed = client.get("/secrets").text
    assert info["network"]["rules"]["www.example.com"][0]["transform"]["headers"]["Authorization"].startswith(
        "Bearer ${"
    )
    assert CANARY not in json.dumps(info) and CANARY not in listed
    assert [path for path in server.data_dir.rglob("*") if holds(path, CANARY.encode())] == []
    assert CANARY not in server.log


def holds(path: Path, word: bytes) -> bool:
    """Whether a file has a word in it; disks of sandboxes, which are large, are looked through from inside."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > 64 << 20:
        return False
    return word in path.read_bytes()


def test_a_new_value_and_a_rule_that_comes_later_count_at_once(server: Server) -> None:
    plain = server.create(timeout=300)
    try:
        Secret.create("late", "first", **server.sdk)
        headers = {"X-Key": Secret.fill("late")}
        plain.update_network({"rules": {"*.example.com": [{"transform": {"headers": headers}}]}})
        plain.commands.run(CLIENTS["python"], timeout=60)
        assert asked("python")["x-key"] == "first"
        Secret.update("late", "second", **server.sdk)
        plain.commands.run(CLIENTS["node"], timeout=60)
        assert asked("node")["x-key"] == "second"
        Secret.destroy("late", **server.sdk)
        refused = plain.commands.run(CLIENTS["curl"], timeout=60)
        assert "secret 'late'" in refused.stdout and "does not exist" in refused.stdout
    finally:
        plain.kill()


def test_rules_hold_after_a_pause_and_after_the_servers_end(server: Server) -> None:
    made = server.create(timeout=300, network={"rules": RULES})
    try:
        made.pause()
        again = Sandbox.connect(made.sandbox_id, **server.sdk)
        again.commands.run(CLIENTS["curl"], timeout=60)
        assert asked("curl")["authorization"] == f"Bearer {CANARY}"
        server.kill_9()
        server.up()
        outside.Web.seen.clear()
        again.commands.run(CLIENTS["curl"], timeout=60)
        assert asked("curl")["authorization"] == f"Bearer {CANARY}"
    finally:
        made.kill()


JAVASCRIPT = """
import { Sandbox, Secret } from 'e2b'
import assert from 'node:assert'
const made = await Secret.create('from-js', 'js-value-1', { metadata: { a: 'b' } })
assert.equal(made.name, 'from-js'); assert.equal(made.version, 1)
assert.equal((await Secret.update('from-js', 'js-value-2')).version, 2)
assert.ok((await Secret.list().nextItems()).some((s) => s.name === 'from-js'))
assert.equal((await Secret.getInfo('from-js')).version, 2)
const rules = { 'www.example.com': [{ transform: { headers: { 'X-Js': Secret.fill('from-js') } } }] }
const sandbox = await Sandbox.create({ timeoutMs: 120_000, network: { rules } })
try {
  assert.deepEqual((await sandbox.getInfo()).network.rules, rules)
  console.log((await sandbox.commands.run('curl -sS https://www.example.com/quiet/js')).stdout)
} finally { await sandbox.kill() }
assert.equal(await Secret.destroy('from-js'), true)
"""


def test_the_javascript_sdk_does_the_same(server: Server, runtime: str) -> None:
    if runtime != "container":
        pytest.skip("the runtime makes no difference to the SDK")
    modules = npm.installed()
    script = modules / "secrets.mjs"
    script.write_text(JAVASCRIPT)
    assert npm.run(server, modules, str(script)).stdout == "ok\n"
    assert asked("js")["x-js"] == "js-value-2"
