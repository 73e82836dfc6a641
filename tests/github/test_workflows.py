"""Workflows become commands, or a reason why they cannot; and the commands do in a real shell what GitHub's runner does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.github.state import GIT_ENV

from sandlot.platform.core.proofs import Trial, TrialStep
from sandlot.platform.core.tasks import CheckResult
from sandlot.platform.forges.github_reports import WorkflowJob
from sandlot.platform.tasks import trials
from sandlot.platform.tasks.trials import trial_run, trial_script, unlike
from sandlot.platform.triggers.expressions import combinations
from sandlot.platform.triggers.workflows import Extracted, WorkflowPlace, extracted

SHA = "a" * 40
PLACE = WorkflowPlace(repository="ada/app", branch="topic", sha=SHA, event="pull_request", number=7)


def job(name: str, *steps: tuple[str, str], conclusion: str = "failure", log: str | None = None) -> WorkflowJob:
    return WorkflowJob(id=1, name=name, url="", conclusion=conclusion, steps=steps, log=log)


def found(text: str, *jobs: WorkflowJob, place: WorkflowPlace = PLACE) -> Extracted:
    return extracted(text, place, jobs or [job("test", ("Run make test", "failure"))])


def one(step: str, job_keys: str = "", workflow_keys: str = "") -> str:
    return f"{workflow_keys}\njobs:\n  test:\n    runs-on: ubuntu-latest\n{job_keys}\n    steps:\n      - {step}\n"


def test_a_step_has_its_environment_directory_shell_and_matrix() -> None:
    text = """
env: {A: workflow, B: workflow}
defaults: {run: {working-directory: src, shell: sh}}
jobs:
  test:
    name: Test ${{ matrix.os }} on ${{ matrix.version }}
    runs-on: ${{ matrix.os }}
    strategy: {matrix: {os: [ubuntu-24.04, macos-14], version: [1.0, 2.5], exclude: [{os: ubuntu-24.04, version: 1.0}]}}
    env: {B: job, C: "${{ github.ref }} ${{ matrix.version }}"}
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with: {python-version: "3.12"}
      - {name: Only sometimes, if: failure(), run: exit 9}
      - {name: Install, run: pip install ., working-directory: ./lib}
      - {name: Test, run: "make ${{ env.B }} ${{ matrix.os }}", shell: bash, env: {D: "${{ env.A }}"}}
      - run: make later
"""
    steps = (("Install", "success"), ("Only sometimes", "skipped"), ("Test", "failure"))
    log = "##[error]Process completed with exit code 2."
    [trial] = found(text, job("Test ubuntu-24.04 on 2.5", *steps, log=log)).trials
    python, install, test = trial.steps
    assert "command -v python3" in python.script and "3.12" in python.script
    assert (install.directory, install.shell) == ("lib", "sh -e {0}")
    assert (test.script, test.directory) == ("make job ubuntu-24.04", "src")
    assert test.shell == "bash --noprofile --norc -eo pipefail {0}" and test.environment == {"D": "workflow"}
    assert trial.environment["C"] == "refs/pull/7/merge 2.5" and trial.environment["A"] == "workflow"
    assert trial.failed and trial.exit_code == 2
    [problem] = found(text, job("Test macos-14 on 1", *steps)).problems
    assert "macos" in problem


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (one("run: make test", "    runs-on: windows-latest"), "Linux"),
        (one("run: make test", "    services: {db: {image: postgres}}"), "services"),
        (one("run: make test", "    container: node:22"), "image of its own"),
        (one("{name: Run make test, run: 'curl -d ${{ secrets.TOKEN }} example.org'}"), "secret"),
        (one("{name: Run make test, run: 'echo ${{ steps.x.outputs.y }}'}"), "only known at GitHub"),
        (one("{name: Run make test, run: 'echo ${{ github.event.issue.title }}'}"), "only known at GitHub"),
        (one("{name: Run make test, run: x, shell: pwsh}"), "shell"),
        (one("{name: Run make test, run: x, working-directory: ../../etc}"), "outside"),
        (one("{name: Run make test, run: x, env: {'A B': c}}"), "name of a variable"),
        (one("{name: Run make test, uses: some/action@v1}"), "is an action"),
        (one("{uses: some/action@v1}\n      - run: make test"), "does not run in a sandbox"),
        (one("{uses: actions/checkout@v4, with: {ref: main}}\n      - run: make test"), "something else"),
        (one("run: something else"), "not in the workflow's file"),
        ("jobs: {other: {runs-on: x, steps: []}}", "by a name"),
        ("jobs: {test: {uses: ./.github/workflows/x.yml}}", "of its own"),
        ("jobs: {test: {runs-on: x, strategy: {matrix: '${{ fromJSON(x) }}'}}}", "computed"),
        ("a: &a [*a, *a", "cannot be read"),
        ("[" * 20_000, "cannot be read"),
        ("- nothing", "no jobs"),
    ],
)
def test_what_cannot_be_run_here_is_said(text: str, words: str) -> None:
    got = found(text)
    assert not got.trials and words in " ".join(got.problems), got


def test_a_template_of_the_rule_stands_for_services_and_images() -> None:
    place = WorkflowPlace(repository="ada/app", branch="topic", sha=SHA, has_template=True)
    text = one("run: make test", "    services: {db: {image: postgres}}")
    assert found(text, place=place).trials


def test_a_matrix_is_crossed_with_what_it_includes_and_excludes() -> None:
    matrix = {
        "os": ["a", "b"],
        "v": [1, 2],
        "exclude": [{"os": "a", "v": 1}],
        "include": [{"os": "b", "x": 1}, {"os": "c"}, {"y": 2}],
    }
    assert combinations({"strategy": {"matrix": matrix}}) == [
        {"os": "a", "v": 2, "y": 2},
        {"os": "b", "v": 1, "x": 1, "y": 2},
        {"os": "b", "v": 2, "x": 1, "y": 2},
        {"os": "c"},
    ]
    assert combinations({"strategy": {"matrix": {"include": [{"v": 1}, {"v": 2}]}}}) == [{"v": 1}, {"v": 2}]


# -- in a real shell ----------------------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(trials, "HOME", str(tmp_path / "home"))
    place = tmp_path / "checkout"
    for arguments in (
        ("init", "-q", "-b", "main", str(place)),
        ("-C", str(place), "commit", "-q", "--allow-empty", "-m", "one"),
    ):
        subprocess.run(["git", *arguments], check=True, env=GIT_ENV)
    (place / "not-committed").write_text("x")
    return place


def run(checkout: Path, trial: Trial) -> tuple[CheckResult, str]:
    script = trial_script(trial, checkout=str(checkout), repository="app", commit="refs/heads/main")
    done = subprocess.run(["sh", "-c", script], env=GIT_ENV, capture_output=True, text=True, timeout=60)
    result = CheckResult(command="", exit_code=done.returncode, output=done.stdout + done.stderr)
    return result, result.output


def trial(*steps: TrialStep, **more: int | None) -> Trial:
    return Trial(name="job", steps=steps, failed=True, environment={"GITHUB_SHA": SHA, "QUOTE": "it's $HOME"}, **more)  # type: ignore[arg-type]


def test_steps_share_what_they_write_for_later_and_see_only_what_is_committed(checkout: Path) -> None:
    first = (
        'printf "A=1 2\\nB<<E\\nx\\n  y\\nE\\n9bad=1\\nwith-dash=1\\n" >>"$GITHUB_ENV"; mkdir -p "$RUNNER_TEMP/bin"\n'
    )
    first += 'printf "#!/bin/sh\\necho tool" >"$RUNNER_TEMP/bin/tool"; chmod +x "$RUNNER_TEMP/bin/tool"; echo "$RUNNER_TEMP/bin" >>"$GITHUB_PATH"'
    last = 'test "$A" = "1 2"; test "$B" = "x\n  y"; test "$QUOTE" = "it\'s \\$HOME"; test ! -e not-committed; tool; echo "$OWN"; false; echo no'
    result, output = run(
        checkout,
        trial(
            TrialStep(name="first'; exit 7", script=first),
            TrialStep(name="last", script=last, environment={"OWN": "a'b"}),
        ),
    )
    assert result.exit_code == trials.RED and output.endswith("tool\na'b\n\nsandlot: exit code 1\n"), output


def test_a_preparation_that_fails_is_told_apart_and_so_is_another_exit_code(checkout: Path) -> None:
    made = trial(TrialStep(name="install", script="exit 3"), TrialStep(name="test", script="true"))
    result, _ = run(checkout, made)
    seen = trial_run(made, result)
    assert (result.exit_code, seen.exit_code, seen.step) == (trials.NOT_PREPARED, 3, "install")
    assert "which passed" in (unlike(made, seen, result.exit_code) or "")
    missing = trial(TrialStep(name="test", script="no-such-program"), exit_code=1)
    result, _ = run(checkout, missing)
    assert "127 here, and with 1" in (unlike(missing, trial_run(missing, result), result.exit_code) or "")
    same = trial(TrialStep(name="test", script="exit 5"), exit_code=5)
    result, _ = run(checkout, same)
    assert unlike(same, trial_run(same, result), result.exit_code) is None
    green, _ = run(checkout, trial(TrialStep(name="python", script="print('hello')", shell="python3 {0}")))
    assert green.exit_code == 0 and "hello" in green.output


def test_a_commit_that_is_not_there_is_no_red(checkout: Path) -> None:
    script = trial_script(
        trial(TrialStep(name="t", script="true")), checkout=str(checkout), repository="app", commit=SHA
    )
    done = subprocess.run(["sh", "-c", script], env=GIT_ENV, capture_output=True, timeout=60)
    assert done.returncode == trials.NO_CHECKOUT
