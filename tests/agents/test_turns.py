"""A turn of an agent: started once, followed by its files, interrupted, and found again, with a real shell and real processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from sandlot.platform.agents.descriptions import AgentDescription, AgentTask, load_agents
from sandlot.platform.agents.turns import (
    Turn,
    interrupt_line,
    interrupt_seconds,
    state_line,
    turn_files,
    turn_script,
)
from sandlot.platform.core.errors import ConfigurationError, InvalidRequest
from sandlot.platform.core.tasks import TokenUsage

AGENTS = load_agents()
COMMAND = AGENTS["command"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path


@pytest.fixture(autouse=True)
def nothing_stays(home: Path) -> Iterator[None]:
    yield
    for pid in home.glob(".sandlot/turns/*/*/*/pid"):
        leader = int(pid.read_text())
        if leader > 1:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(leader, signal.SIGKILL)


def turn(home: Path, command: str = "true", **changes: object) -> Turn:
    told = Turn(
        task="bcd",
        attempt=1,
        number=1,
        prompt="Fix it.\n",
        directory=str(home / "work"),
        command=command,
        home=str(home),
    )
    return replace(told, **changes)  # type: ignore[arg-type]


def sh(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "HOME": "/nowhere", **environment}
    return subprocess.run(["sh", "-c", line], env=env, capture_output=True, text=True, timeout=90)


def put(files: Mapping[str, bytes]) -> None:
    for path, data in files.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(data)


def start(told: Turn, agent: AgentDescription = COMMAND) -> None:
    script = turn_script(agent, told)
    put(script.files)
    done = sh(script.start)
    assert done.returncode == 0, done.stderr


def wait_for(path: Path | str, within_s: float = 60) -> str:
    deadline = time.monotonic() + within_s
    while not Path(path).exists() or not (text := Path(path).read_text()):
        assert time.monotonic() < deadline, f"{path} does not come"
        time.sleep(0.05)
    return text


def state(told: Turn) -> str:
    return sh(state_line(told)).stdout.strip()


def test_a_turn_runs_in_the_checkout_with_its_prompt_and_its_variables(home: Path) -> None:
    told = turn(
        home,
        'cat; pwd; echo "$TOKEN" >&2; cat "$SANDLOT_PROMPT_FILE" >seen; exit 3',
        environment={"TOKEN": "it's $HOME\nsecret"},
        files={".codex/config.toml": "x = 1\n"},
    )
    files = turn_files(told)
    assert state(told) == "absent"
    start(told)
    assert wait_for(files.exit_code) == "3\n"
    header, *lines = Path(files.output).read_text().splitlines()
    assert json.loads(header) == {"type": "sandlot.turn", "directory": told.directory, "command": told.command}
    assert lines == ["Fix it.", told.directory, "it's $HOME", "secret"], (
        "the errors of a command are part of its output"
    )
    assert (home / "work/seen").read_text() == told.prompt
    assert (home / ".codex/config.toml").read_text() == "x = 1\n"
    assert not (Path(files.folder) / "environment").exists(), "secrets do not stay on the disk"
    assert state(told) == "ended 3"
    assert "secret" not in repr(told) and "secret" not in repr(turn_script(COMMAND, told))


def test_a_turn_that_was_started_does_not_start_again(home: Path) -> None:
    told = turn(home, "echo once >>log; sleep 0.5", environment={"TOKEN": "secret"})
    script = turn_script(COMMAND, told)
    put(script.files)
    many = [subprocess.Popen(["sh", "-c", script.start]) for _ in range(8)]
    assert [each.wait(60) for each in many] == [0] * 8
    put(script.files)  # as somebody does who does not know that it runs
    assert sh(script.start).returncode == 0
    wait_for(turn_files(told).exit_code)
    assert sh(script.start).returncode == 0
    assert (home / "work/log").read_text() == "once\n"
    assert not (Path(turn_files(told).folder) / "environment").exists()


def test_a_turn_goes_on_when_whoever_started_it_is_gone(home: Path) -> None:
    told = turn(home, "sleep 1; echo late")
    script = turn_script(COMMAND, told)
    put(script.files)
    shell = subprocess.Popen(["sh", "-c", f"{script.start}; sleep 60"], start_new_session=True)
    wait_for(turn_files(told).pid)
    os.killpg(shell.pid, signal.SIGKILL)
    shell.wait(60)
    assert wait_for(turn_files(told).exit_code) == "0\n"
    assert Path(turn_files(told).output).read_text().endswith("late\n")


@pytest.mark.parametrize(
    ("command", "exit_code"),
    [
        ("trap 'echo asked; exit 9' INT; echo ready >up; while :; do sleep 0.1; done", "9\n"),
        ("echo ready >up; sleep 100", "130\n"),
        ("trap '' INT; trap 'exit 8' TERM; echo ready >up; while :; do sleep 0.1; done", "8\n"),
        ("trap '' INT TERM; echo ready >up; while :; do sleep 0.1; done", "137\n"),
    ],
    ids=["asked", "plain", "deaf-to-int", "deaf"],
)
def test_an_interrupt_ends_a_turn_as_kindly_as_it_lets_itself(home: Path, command: str, exit_code: str) -> None:
    agent = COMMAND.model_copy(update={"task": AgentTask(start=("-c", "{command}"), output="text", grace_s=1)})
    told = turn(home, command)
    start(told, agent)
    wait_for(home / "work/up")
    assert state(told) == "running"
    assert sh(interrupt_line(agent, told)).returncode == 0
    assert Path(turn_files(told).exit_code).read_text() == exit_code
    assert sh(interrupt_line(agent, told)).returncode == 0, "it may be repeated"
    assert interrupt_seconds(agent) >= 3


def test_programs_that_left_the_group_are_ended_too(home: Path) -> None:
    told = turn(home, "trap '' INT TERM; setsid sleep 300 & echo $! >left; echo >up; while :; do sleep 0.1; done")
    agent = COMMAND.model_copy(update={"task": AgentTask(start=("-c", "{command}"), output="text", grace_s=1)})
    start(told, agent)
    wait_for(home / "work/up")
    left = int(wait_for(home / "work/left"))
    sh(interrupt_line(agent, told))
    deadline = time.monotonic() + 30
    while Path(f"/proc/{left}").exists() and "Z" not in Path(f"/proc/{left}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_turn_that_is_interrupted_before_it_began_never_begins(home: Path) -> None:
    told = turn(home, "touch began")
    script = turn_script(COMMAND, told)
    put(script.files)
    assert sh(interrupt_line(COMMAND, told)).returncode == 0
    assert sh(script.start).returncode == 0
    assert state(told) == "ended 130"
    assert not (home / "work/began").exists()


def test_a_turn_whose_machine_was_lost_is_gone(home: Path) -> None:
    told = turn(home, "sleep 100")
    start(told)
    os.killpg(int(wait_for(turn_files(told).pid)), signal.SIGKILL)
    deadline = time.monotonic() + 30
    while state(told) != "gone":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    stranger = subprocess.Popen(["sleep", "100"], start_new_session=True)
    try:
        Path(turn_files(told).pid).write_text(f"{stranger.pid}\n")
        assert state(told) == "gone", "another process has its number now"
        sh(interrupt_line(COMMAND, told))
        assert stranger.poll() is None, "and is left alone"
    finally:
        stranger.kill()
        stranger.wait()
    assert state(told) == "ended 137"


def test_a_checkout_that_is_missing_is_told(home: Path) -> None:
    told = turn(home, directory=str(home / "nowhere"))
    start(told)
    assert wait_for(turn_files(told).exit_code) == "126\n"
    assert "nowhere" in Path(turn_files(told).errors).read_text()


def test_what_a_person_writes_is_no_shell(home: Path) -> None:
    prompt = "say `touch /tmp/a` $(touch b) \"'; touch c #\n\n"
    task = AgentTask(start=("-c", 'printf %s "$1" >seen', "sh", "{prompt}"), output="text")
    agent = COMMAND.model_copy(update={"task": task})
    told = turn(home, prompt=prompt, model="m'; touch d")
    start(told, agent)
    wait_for(turn_files(told).exit_code)
    assert (home / "work/seen").read_text() == prompt
    assert [path.name for path in (home / "work").iterdir()] == ["seen"]


def test_sessions_are_chosen_or_resumed(home: Path) -> None:
    scripted = AGENTS["scripted"]
    first, again = turn(home, prompt="x"), turn(home, prompt="x", number=2, resume="abc", spent=TokenUsage(input=5))
    start(first, scripted)
    wait_for(turn_files(first).exit_code)
    header, init = (json.loads(line) for line in Path(turn_files(first).output).read_text().splitlines()[:2])
    assert header["session"] == init["session_id"] and "spent" not in header
    text = turn_script(scripted, again).files[turn_files(again).script].decode()
    assert "--session abc --resume" in text and '"input": 5' in text


def test_agents_and_turns_that_cannot_start_are_refused(home: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"\[task\]"):
        turn_script(COMMAND.model_copy(update={"task": None}), turn(home))
    with pytest.raises(InvalidRequest, match="needs a command"):
        turn_script(COMMAND, turn(home, command=""))
    for environment in ({"A B": "x"}, {"A;touch x": "x"}, {"A": "x\0y"}):
        with pytest.raises(InvalidRequest, match="variable"):
            turn_script(COMMAND, turn(home, environment=environment))
    with pytest.raises(InvalidRequest, match="id of a task"):
        turn_files(turn(home, task="../x"))


@pytest.mark.parametrize("agent", [each for each in AGENTS.values() if each.task], ids=lambda agent: agent.id)
def test_every_agent_has_a_script_that_a_shell_reads(agent: AgentDescription, home: Path) -> None:
    for resume in (None, "0b0c"):
        told = turn(home, "true", resume=resume, model="a-model")
        files = turn_script(agent, told).files
        checked = subprocess.run(["sh", "-n"], input=files[turn_files(told).script], capture_output=True, timeout=30)
        assert checked.returncode == 0, checked.stderr
