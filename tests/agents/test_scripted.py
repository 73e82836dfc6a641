"""The scripted agent: follows scripts, really works, and tells of it; with the sample repository of the demonstration."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.agents.reading import Read, read

from sandlot.data_files import data_files
from sandlot.platform.agents.demo import DEMO_CHECK, DEMO_FOLLOW_UP, DEMO_OTHERS, DEMO_PROMPT, demo_repository
from sandlot.platform.agents.descriptions import load_agents
from sandlot.platform.agents.turns import Turn, interrupt_line, turn_files, turn_script
from sandlot.platform.core.tasks import EntryKind

SCRIPTED = load_agents()["scripted"]
Told = Callable[..., Read]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def told(tmp_path: Path, work: Path) -> Told:
    """What the agent tells of a turn with this prompt, in the same conversation as those before."""
    turns: list[Read] = []

    def told(prompt: str, exit_code: int = 0) -> Read:
        turn = Turn(
            task="bcd",
            attempt=1,
            number=len(turns) + 1,
            prompt=prompt,
            directory=str(work),
            environment={"SCRIPTED_PACE": "0.001"},
            resume=turns[-1].end.agent_session if turns else None,
            home=str(tmp_path),
        )
        ended, lines, errors = run(turn)
        assert ended == exit_code, errors
        turns.append(read("claude-stream", lines, ended, errors))
        return turns[-1]

    return told


def run(turn: Turn) -> tuple[int, list[str], str]:
    script, files = turn_script(SCRIPTED, turn), turn_files(turn)
    for path, data in script.files.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(data)
    environment = {"PATH": os.environ["PATH"], "HOME": turn.home}
    subprocess.run(["sh", "-c", script.start], env=environment, check=True, timeout=60)
    deadline = time.monotonic() + 90
    while not Path(files.exit_code).exists() or not Path(files.exit_code).stat().st_size:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    ended = int(Path(files.exit_code).read_text())
    return ended, Path(files.output).read_text().splitlines(), Path(files.errors).read_text()


def scripted(script: str) -> str:
    return f"Please do this.\n\n```script\n{script}\n```\nThanks.\n"


def test_a_script_is_followed_for_real(told: Told, work: Path) -> None:
    (work / "a.txt").write_text("one\ntwo\nthree\n")
    script = """
    # a comment
    think First I look.
    read a.txt
    read missing.txt
    edit a.txt <<END
two
====
2
and a half
    END
    write deep/b.txt <<END
b
    END
    append a.txt <<END
four
    END
    edit a.txt <<X
nowhere
====
x
    X
    run cat a.txt; exit 3
    todo one; two
    usage 1000 20 0.5 400
    done All done: {prompt}
    say never
    """
    done = told(scripted(script))
    assert (work / "a.txt").read_text() == "one\n2\nand a half\nthree\nfour\n"
    assert (work / "deep/b.txt").read_text() == "b\n"
    assert [entry.text for entry in done.of(EntryKind.THINKING)] == ["First I look."]
    edits = [(entry.data["path"], entry.data["added"], entry.data["removed"]) for entry in done.of(EntryKind.EDIT)]
    assert edits == [("a.txt", 2, 1), ("deep/b.txt", 1, 0), ("a.txt", 1, 0)]
    assert [entry.data["ok"] for entry in done.of(EntryKind.TOOL) if "ok" in entry.data] == [True, False, False, True]
    command = done.of(EntryKind.COMMAND)[-1].data
    assert command["exit_code"] == 3 and command["output"].startswith("one\n2\n")
    usage = done.end.usage
    assert (usage.input, usage.output, usage.cached, usage.cost_usd) == (1000, 20, 400, 0.5)
    assert done.end.result.startswith("All done: Please do this.") and done.end.problem is None


def test_later_prompts_go_on_with_the_script(told: Told, work: Path) -> None:
    script = "write a.txt 1\ndone one\nturn\nwrite a.txt 2\nask Which? | red | blue\nturn\nsay You chose {prompt}"
    first = told(scripted(script))
    assert (work / "a.txt").read_text() == "1\n" and first.end.question is None
    second = told("The checks failed: exit code 1")
    assert (work / "a.txt").read_text() == "2\n"
    assert second.end.question == "Which?"
    assert second.of(EntryKind.QUESTION)[0].data["options"] == ["red", "blue"]
    assert second.end.agent_session == first.end.agent_session
    assert told("red").end.result == "You chose red"
    assert "SCRIPTED.md" in told("And now?").end.result, "the script is at its end"
    assert told(scripted("done anew")).end.result == "anew"


def test_without_a_script_it_writes_down_what_it_was_asked(told: Told, work: Path) -> None:
    done = told("Make it\nfaster.")
    assert (work / "SCRIPTED.md").read_text() == "\n> Make it\n> faster.\n"
    assert "SCRIPTED.md" in done.end.result and done.of(EntryKind.EDIT)[0].data["path"] == "SCRIPTED.md"


def test_a_script_may_be_a_file_of_the_repository(told: Told, work: Path) -> None:
    (work / "s.txt").write_text("done from a file")
    assert told("Do it.\nscript: s.txt\n").end.result == "from a file"
    missing = told("script: none.txt", exit_code=1)
    assert missing.end.problem and "none.txt" in missing.end.problem
    assert told("Do it.\n#!scripted\ndone the rest is the script\n").end.result == "the rest is the script"


@pytest.mark.parametrize(
    ("script", "exit_code", "problem"),
    [
        ("say hi\nfail It does not work.", 1, "It does not work."),
        ("complain bad thing\nexit 7", 7, "exit code 7: bad thing"),
        ("exit 0", 0, "without a result"),
        ("dance", 1, "line 1: dance: there is no action 'dance'"),
        ("wait long", 1, "line 1: wait"),
        ("write x <<END\nno end", 1, "no line END"),
        ("edit x <<END\nno divider\nEND", 1, "===="),
    ],
)
def test_an_end_with_a_problem_is_told(told: Told, script: str, exit_code: int, problem: str) -> None:
    done = told(scripted(script), exit_code=exit_code)
    assert done.end.problem and problem in done.end.problem
    assert done.kinds[-1] == "error" or "error" in done.kinds


def test_it_can_print_what_is_no_event(told: Told) -> None:
    done = told(scripted("print Warning: {\ndone ok"))
    assert done.of(EntryKind.MESSAGE)[0].data == {"stray": True} and done.end.result == "ok"


@pytest.fixture
def repository(work: Path) -> Path:
    for path, data in demo_repository().items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_bytes(data)
    for words in ("init -q", "add -A", "-c user.name=a -c user.email=a@b.c commit -q -m feat"):
        subprocess.run(["git", *words.split()], cwd=work, check=True)
    return work


def check(repository: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", DEMO_CHECK], cwd=repository, capture_output=True, text=True, timeout=60)


def test_the_demonstration_tells_a_story(told: Told, repository: Path) -> None:
    assert check(repository).returncode == 0
    done = told(f"{DEMO_PROMPT}\n\nWork in this repository.")
    assert check(repository).returncode == 0
    sums = "from split import shares; print(sum(shares(100, ['a', 'b', 'c']).values()))"
    assert subprocess.check_output([sys.executable, "-c", sums], cwd=repository, text=True).strip() == "100.0"
    tests = [(entry.data["passed"], entry.data["failed"]) for entry in done.of(EntryKind.TEST)]
    assert tests == [(2, 0), (3, 2), (4, 1), (5, 0)], "it breaks, and is mended"
    assert {entry.data["path"] for entry in done.of(EntryKind.EDIT)} == {
        "tests/test_shares.py", "split/shares.py", "README.md",
    }  # fmt: skip
    assert done.of(EntryKind.THINKING) and done.end.usage.input and done.end.problem is None
    assert all(entry.data.get("ok", True) for entry in done.of(EntryKind.TOOL))
    again = told(DEMO_FOLLOW_UP)
    assert again.of(EntryKind.EDIT)[0].data["path"] == "split/shares.py" and check(repository).returncode == 0


@pytest.mark.parametrize("prompt", DEMO_OTHERS)
def test_the_demonstration_has_other_stories(told: Told, repository: Path, prompt: str) -> None:
    done = told(prompt)
    if done.end.question is not None:
        assert len(done.of(EntryKind.QUESTION)[0].data["options"]) == 2
        done = told("A flag.")
    assert done.end.problem is None and done.of(EntryKind.EDIT)
    assert all(entry.data.get("ok", True) for entry in done.of(EntryKind.TOOL))
    assert check(repository).returncode == 0
    assert all(entry.data["failed"] == 0 for entry in done.of(EntryKind.TEST))


def test_it_needs_only_an_old_python() -> None:
    """It runs with whatever Python a sandbox has; syntax that 3.8 does not know would not compile there."""
    source = (data_files("guest") / "scripted" / "agent.py").read_text()
    ast.parse(source, feature_version=(3, 8))


def test_an_interrupt_ends_it(tmp_path: Path, work: Path) -> None:
    turn = Turn(task="x", attempt=1, number=1, prompt=scripted("wait 100"), directory=str(work), home=str(tmp_path))
    script = turn_script(SCRIPTED, turn)
    for path, data in script.files.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(data)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    subprocess.run(["sh", "-c", script.start], env=environment, check=True, timeout=60)
    output = Path(turn_files(turn).output)
    deadline = time.monotonic() + 60
    while "init" not in output.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.2)
    subprocess.run(["sh", "-c", interrupt_line(SCRIPTED, turn)], env=environment, check=True, timeout=60)
    assert Path(turn_files(turn).exit_code).read_text() == "130\n"
