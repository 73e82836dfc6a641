"""`./sandlot demo` as on a fresh machine: it starts a server, and a sentence becomes a pull request; again, and it is merged."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.cli.conftest import ROOT, environment
from tests.e2e.conftest import assert_nothing_left, new_server
from tests.e2e.server import Server

from sandlot.platform.agents.demo import DEMO_CHECK

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def nothing_yet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A machine on which no server runs."""
    server = new_server(tmp_path_factory, "container", prepare_templates="none")
    yield server
    server.down()
    assert_nothing_left(server)


def test_a_sentence_becomes_a_pull_request_and_again_and_it_is_merged(nothing_yet: Server) -> None:
    server = nothing_yet
    done = server.cli("demo", timeout=200)
    assert "is ready at" in done.stderr and "/repositories/sandlot-demo/pulls/1" in done.stderr
    assert f"pr merge --data-dir {server.data_dir} sandlot-demo 1" in done.stderr
    assert f"http://127.0.0.1:{server.port}/console/login?link=" in done.stderr
    for told in (
        "› Fix rounding",
        "exit code 1",
        "✎ split/shares.py",
        "● in review",
        "+    cents = round(total",
    ):
        assert told in done.stdout, done.stdout
    assert "\x1b" not in done.stdout

    # Merged as the demo says, and again: it begins anew on what was merged.
    assert json.loads(server.cli("pr", "merge", "sandlot-demo", "1", "--json").stdout)["state"] == "merged"
    told = json.loads(server.cli("demo", "--merge", "--json", timeout=200).stdout)
    assert (told["merged"], told["pull_request"]["number"], told["pull_request"]["state"]) == (True, 2, "merged")
    assert [(check["command"], check["exit_code"]) for check in told["task"]["checks"]] == [(DEMO_CHECK, 0)]
    assert {file["path"] for file in told["diff"]["files"]} == {"README.md", "split/shares.py", "tests/test_shares.py"}
    states = {row["state"] for row in json.loads(server.cli("task", "list", "--json").stdout)}
    assert states <= {"review", "done"}


def test_a_repository_of_the_same_name_is_left_alone(nothing_yet: Server) -> None:
    if not (nothing_yet.data_dir / "server.json").exists():
        nothing_yet.up()
    nothing_yet.cli("repo", "create", "mine")
    refused = nothing_yet.cli("demo", "--repository", "mine", check=False)
    assert refused.returncode == 1 and "holds other work" in refused.stderr
    assert json.loads(nothing_yet.cli("task", "list", "--repo", "mine", "--json").stdout) == []


def test_the_example_hands_over_work_and_merges_it(nothing_yet: Server) -> None:
    if "sandlot-demo" not in nothing_yet.cli("repo", "list", check=False).stdout:
        nothing_yet.cli("demo", "--merge", "--json", timeout=200)
    given = {
        "PLATFORM_URL": f"http://127.0.0.1:{nothing_yet.port}",
        "PLATFORM_KEY": nothing_yet.key,
        "AGENT": "scripted",
    }
    work = ("sandlot-demo", "Add a --json flag that prints the shares as one object.", DEMO_CHECK)
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "tasks" / "hand_over.py"), *work],
        env=environment(**given),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "message: I look at the command line first." in done.stdout and "add_argument" in done.stdout
    assert done.stdout.rstrip().endswith("is merged")
