"""Whole instances through the CLI: started, used, looked at and ended, two of them side by side."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import environment

pytestmark = pytest.mark.timeout(300)


class Instance:
    """One data directory, used through the command line only."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = environment(SANDLOT_DATA_DIR=str(directory), SANDLOT_PORT="0", SANDLOT_RUNTIME="container")

    def argv(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "sandlot", *arguments]

    def __call__(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*arguments), env=self.environment, input=stdin or "", capture_output=True, text=True, timeout=240
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.argv(*arguments),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def sandboxes(self) -> list[str]:
        return [row["sandboxID"] for row in json.loads(self("sandbox", "list", "--json").stdout)]

    def create(self) -> str:
        """A sandbox that stays, made by the official SDK with what `env` prints."""
        code = "from e2b import Sandbox; print(Sandbox.create(timeout=900).sandbox_id)"
        script = f'eval "$({sys.executable} -P -m sandlot env)"; exec {sys.executable} -c "{code}"'
        done = subprocess.run(["sh", "-c", script], env=self.environment, capture_output=True, text=True, timeout=110)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    instance = Instance(tmp_path_factory.mktemp("one"))
    done = instance("up", "--detach")
    try:
        assert done.returncode == 0, done.stderr
        assert "Hello from Linux" in done.stderr
        yield instance
    finally:
        instance("down")


@pytest.fixture(autouse=True)
def nothing_left(one: Instance) -> Iterator[None]:
    yield
    for id in one.sandboxes():
        one("sandbox", "kill", id)


def test_up_again_says_that_it_runs_and_is_content(one: Instance) -> None:
    again = one("up", "--detach")
    assert again.returncode == 0
    assert "already runs" in again.stderr


def test_status_tells_the_server_and_what_it_has(one: Instance) -> None:
    done = one("status", "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["running"] and record["healthy"]
    assert record["templates"] == ["base"]
    assert record["disk"]["layers"] > 100 << 20
    assert record["url"] in one("status").stdout


def test_run_streams_output_and_ends_with_the_commands_status(one: Instance) -> None:
    done = one("run", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
    assert one.sandboxes() == []


def test_run_passes_arguments_as_they_are(one: Instance) -> None:
    words = ["it's", "$HOME", "a  b", "*", ""]
    done = one("run", "--", "python3", "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", *words)
    assert json.loads(done.stdout) == words, done.stderr


def test_run_passes_piped_input_on(one: Instance) -> None:
    text = "line ä\n" * 20_000
    done = one("run", "--", "sha256sum", stdin=text)
    import hashlib

    assert done.stdout.split()[0] == hashlib.sha256(text.encode()).hexdigest(), done.stderr


def test_run_has_the_user_directory_and_variables_it_was_given(one: Instance) -> None:
    done = one("run", "--user", "root", "--cwd", "/etc", "-e", "A=b=c", "--", "sh", "-c", "id -un; pwd; echo $A")
    assert done.stdout.split() == ["root", "/etc", "b=c"], done.stderr
    assert one("run", "-e", "novalue", "--", "true").returncode == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_removes_its_sandbox_when_it_is_interrupted(one: Instance, number: signal.Signals) -> None:
    child = one.start("run", "--", "sh", "-c", "echo started; sleep 300")
    assert child.stdout is not None
    assert child.stdout.readline() == "started\n"
    assert len(one.sandboxes()) == 1
    child.send_signal(number)
    child.communicate(timeout=110)
    assert child.returncode == 128 + number
    assert one.sandboxes() == []


def test_a_template_that_is_not_there_is_an_error_with_words(one: Instance) -> None:
    done = one("run", "--template", "nonesuch", "--", "true")
    assert done.returncode == 1
    assert "nonesuch" in done.stderr and "Traceback" not in done.stderr


def test_a_sandbox_can_be_listed_looked_at_used_and_ended(one: Instance) -> None:
    id = one.create()
    assert one.sandboxes() == [id]
    assert id in one("sandbox", "list").stdout
    record = json.loads(one("sandbox", "info", id, "--json").stdout)
    assert record["sandboxID"] == id
    shown = one("sandbox", "info", id).stdout
    assert record["envdAccessToken"] not in shown
    assert one("sandbox", "exec", id, "--", "sh", "-c", "echo hi > /tmp/f; exit 5").returncode == 5
    assert one("sandbox", "exec", id, "--", "cat", "/tmp/f").stdout == "hi\n"
    after = json.loads(one("sandbox", "info", id, "--json").stdout)
    assert abs(_seconds(after["endAt"]) - _seconds(record["endAt"])) < 5  # using it does not extend its life
    assert one("sandbox", "logs", id).returncode == 0
    assert json.loads(one("sandbox", "logs", id, "--json").stdout) is not None
    assert one("sandbox", "kill", id).returncode == 0
    again = one("sandbox", "kill", id)
    assert again.returncode == 1 and id in again.stderr
    gone = one("sandbox", "info", id)
    assert gone.returncode == 1 and id in gone.stderr


def _seconds(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def test_templates_are_listed(one: Instance) -> None:
    assert [row["templateID"] for row in json.loads(one("template", "list", "--json").stdout)] == ["base"]
    assert "base" in one("template", "list").stdout


def test_a_revoked_key_stops_working_on_the_running_server(one: Instance) -> None:
    import urllib.error
    import urllib.request

    made = json.loads(one("key", "create", "brief", "--json").stdout)
    url = json.loads(one("env", "--json").stdout)["E2B_API_URL"]

    def status() -> int:
        request = urllib.request.Request(f"{url}/v2/sandboxes", headers={"X-API-KEY": made["key"]})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    assert status() == 200
    assert one("key", "revoke", made["id"]).returncode == 0
    until(lambda: status() == 401)


def test_two_instances_run_side_by_side_and_know_only_their_own(one: Instance, tmp_path: Path) -> None:
    two = Instance(tmp_path / "two")
    mine = one.create()
    try:
        assert two("up", "--detach").returncode == 0
        theirs = two.create()
        assert two.sandboxes() == [theirs]
        assert one.sandboxes() == [mine]
        assert two("sandbox", "info", mine).returncode == 1

        assert two("down", "--keep").returncode == 0
        assert two("status").returncode == 3
        assert two("up", "--detach", "--no-hello").returncode == 0
        assert two.sandboxes() == [theirs]
        assert two("sandbox", "exec", theirs, "--", "true").returncode == 0
    finally:
        assert two("down").returncode == 0
    assert one("sandbox", "exec", mine, "--", "true").returncode == 0
    assert not _namespaces(two.directory)


def _namespaces(directory: Path) -> list[str]:
    """Network namespaces pinned for an instance, found by its six digits."""
    from sandlot.wiring.node import instance_id

    digits = instance_id(directory)
    pinned = Path("/run/netns")
    return [entry.name for entry in pinned.iterdir() if digits in entry.name] if pinned.is_dir() else []


def test_in_the_foreground_ctrl_c_ends_the_server_and_its_sandboxes(tmp_path: Path) -> None:
    here = Instance(tmp_path / "here")
    child = here.start("up", "--no-hello")
    try:
        until(lambda: here("status").returncode == 0, 120)
        here.create()
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=110)
        assert child.returncode == 0, said
        assert "1 sandbox ended" in said
        assert here("status").returncode == 3
    finally:
        if child.poll() is None:
            child.kill()
            child.communicate()
        here("down")


def test_a_server_in_the_foreground_does_not_outlive_its_command(tmp_path: Path) -> None:
    here = Instance(tmp_path / "here")
    child = here.start("up", "--no-hello")
    try:
        until(lambda: here("status").returncode == 0, 120)
        child.kill()
        child.communicate()
        until(lambda: here("status").returncode == 3)
        assert _namespaces(here.directory)  # kept for sandboxes, of which there are none
    finally:
        here("down")
    assert not _namespaces(here.directory)


def test_a_server_that_cannot_start_shows_its_last_words(tmp_path: Path) -> None:
    here = Instance(tmp_path / "here")
    here.environment["SANDLOT_DATABASE_URL"] = "postgresql://nobody@127.0.0.1:1/none"
    done = here("up", "--detach")
    assert done.returncode == 1
    assert "server.log" in done.stderr and "127.0.0.1" in done.stderr
    assert not (here.directory / "server.json").exists()


def test_secrets_of_the_callers_environment_do_not_reach_the_server(one: Instance, tmp_path: Path) -> None:
    here = Instance(tmp_path / "here")
    here.environment["SOME_API_KEY"] = "very secret"
    try:
        assert here("up", "--detach", "--no-hello").returncode == 0
        pid = json.loads(here("status", "--json").stdout)["pid"]
        assert b"very secret" not in Path(f"/proc/{pid}/environ").read_bytes()
    finally:
        here("down")
