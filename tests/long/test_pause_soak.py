"""Two hundred pauses and resumes over ten sandboxes with data and a counting process each: nothing is lost, nothing leaks."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import random
from pathlib import Path

import pytest
from e2b import Sandbox
from tests.e2e import leaks
from tests.e2e.conftest import in_pristine
from tests.e2e.crashes import COUNTER, SETUP
from tests.e2e.server import Server, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]
SANDBOXES = int(os.environ.get("SOAK_SANDBOXES", "10"))
CYCLES = int(os.environ.get("SOAK_CYCLES", "200"))


@pytest.mark.parametrize("runtime", ["gvisor", "container"])
def test_pauses_lose_nothing_and_leak_nothing(runtime: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    with in_pristine(tmp_path_factory, runtime, warm_slots="2", pool_size="0") as server:
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            sandboxes = list(pool.map(lambda _: _populated(server), range(SANDBOXES)))
            counts = dict.fromkeys((one.sandbox_id for one in sandboxes), 0)
            before = _inventory(server)
            for turn in range(CYCLES // SANDBOXES):
                random.Random(turn).shuffle(sandboxes)
                for identity, count in pool.map(_cycle, sandboxes):
                    assert count >= counts[identity], "it counted on from where it was"
                    counts[identity] = count
            until(lambda: len(_inventory(server)) <= len(before), what="as much on the host as before")
            for one in pool.map(_at_rest, sandboxes):
                assert one
        _check_at_rest(server, runtime, [one.sandbox_id for one in sandboxes])
        for one in sandboxes:
            one.kill()
        until(lambda: not leaks.traces(server.data_dir), what="an empty host")
        assert not [path for path in (server.data_dir / "checkpoints").iterdir() if not path.name.startswith("seed-")]


def _populated(server: Server) -> Sandbox:
    sandbox = server.create(timeout=7200)
    sandbox.files.write("/home/user/counter.py", COUNTER)
    sandbox.commands.run(SETUP)
    return sandbox


def _cycle(sandbox: Sandbox) -> tuple[str, int]:
    """One pause and one resume; how far it has counted."""
    sandbox.pause()
    sandbox.connect(timeout=7200)
    assert sandbox.commands.run("sha256sum -c sum", timeout=120).exit_code == 0
    first = int(sandbox.files.read("/home/user/count"))
    until(lambda: int(sandbox.files.read("/home/user/count")) > first, what="the count")
    return sandbox.sandbox_id, first


def _at_rest(sandbox: Sandbox) -> bool:
    return bool(sandbox.pause())


def _check_at_rest(server: Server, runtime: str, ids: list[str]) -> None:
    """Under gVisor nothing of a paused sandbox is on the host but its state; a container stands still, and is frozen."""
    found = leaks.traces(server.data_dir)
    if runtime == "gvisor":
        assert not found, f"paused sandboxes hold: {found}"
        return
    states = [path.read_text().strip() for path in Path("/sys/fs/cgroup").glob("freezer/sandlot-*/*/freezer.state")]
    assert all(any(identity in line for line in found) for identity in ids)
    assert not states or "FROZEN" in states


def _inventory(server: Server) -> list[str]:
    """Mounts, groups, directories, loop devices, namespaces; not processes, which come and go with commands."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        found = [line for line in leaks.traces(server.data_dir) if not line.startswith("process")]
        found += sorted(leaks.slots(server.data_dir))
    return found
