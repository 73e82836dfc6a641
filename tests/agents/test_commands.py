"""What shell commands are about, and what their output says, in linear time whatever it is."""

from __future__ import annotations

import pytest

from sandlot.platform.agents.readers.commands import bare_command, commit_sha, counted, git_action, runs_tests


@pytest.mark.parametrize(
    "command",
    [
        "pytest -q", "cd app && python3 -m pytest", "CI=1 npm test", "npm run test", "go test ./...", "cargo test",
        "make check", "timeout 60 npx jest", "python -m unittest discover", "node --test", "./run-tests.sh",
    ],
)  # fmt: skip
def test_commands_that_run_tests_are_known(command: str) -> None:
    assert runs_tests(command)


@pytest.mark.parametrize("command", ["cat pytest.ini", "echo npm test", "pip install pytest", "ls tests", "git log"])
def test_other_commands_run_no_tests(command: str) -> None:
    assert not runs_tests(command)


@pytest.mark.parametrize(
    ("output", "passed", "failed"),
    [
        ("2 failed, 3 passed in 0.1s", 3, 2),
        ("===== 7 passed in 1s =====", 7, 0),
        ("Ran 5 tests in 0.1s\n\nFAILED (failures=1, errors=1)", 3, 2),
        ("Ran 2 tests in 0.1s\n\nOK", 2, 0),
        ("--- PASS: TestA (0.00s)\n    --- FAIL: TestB/x (0.00s)\nFAIL", 1, 1),
        ("Tests:       1 failed, 2 passed, 3 total", 2, 1),
        ("test result: FAILED. 4 passed; 1 failed; 0 ignored", 4, 1),
        ("  12 passing (3s)\n  1 failing", 12, 1),
        ("# pass 3\n# fail 0", 3, 0),
        ("all is well", None, None),
    ],
)
def test_results_of_tests_are_counted(output: str, passed: int | None, failed: int | None) -> None:
    counts = counted(output)
    assert (counts.passed, counts.failed) == (passed, failed)


def test_git_and_shells_are_seen_through() -> None:
    assert git_action("git add -A && git -c user.name=x commit -m y") == "commit"
    assert git_action("git status") is None and git_action("echo git push") is None
    assert commit_sha("[main (root-commit) 1a2b3c4] x\n") == "1a2b3c4"
    assert bare_command("/bin/bash -lc 'echo \"a b\"'") == 'echo "a b"'
    assert bare_command("bash -c 'unbalanced") == "bash -c 'unbalanced"


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text", ["\n" * 60_000, "1" * 60_000, " " * 60_000, "[a " * 20_000, "A=a " * 20_000, "; " * 30_000]
)
def test_hostile_text_takes_no_time(text: str) -> None:
    for _ in range(5):
        counted(text)
        commit_sha(text)
        runs_tests(text)
        git_action(text)
        bare_command(text)
