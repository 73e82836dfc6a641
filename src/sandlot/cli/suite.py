"""The test command: everything that CI checks, in one go, on a fresh machine too."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sandlot.cli import output, preparation
from sandlot.cli.options import settings
from sandlot.cli.output import Failure

ROOT = Path(__file__).resolve().parents[3]
# Tests must not spend anybody's money, nor take a real service for the one they started.
_SECRET = re.compile(
    r"(API_?KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)|^(E2B|ANTHROPIC|CLAUDE|OPENAI|CODEX|GEMINI|GOOGLE|AWS|AZURE|GITHUB)_"
)
_KEPT = ("SANDLOT_CACHE_DIR", "SANDLOT_VENV", "SANDLOT_LAUNCHER")


def test(
    context: typer.Context,
    long: Annotated[
        bool, typer.Option("--long", help="Soaks and upstream's suites as well; takes much longer.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Lint, types and the tests that start no server; about a minute.")
    ] = False,
) -> None:
    """Check everything: lint, types and all tests. More arguments go to pytest, and then only pytest runs."""
    if not (ROOT / "tests").is_dir():
        raise Failure("the tests are not here: they come with the source, not with an installed package")
    preparation.require_root()
    preparation.install_packages("run", "domain", "test")
    if quick and (long or context.args):
        raise Failure("--quick chooses the tests itself: leave out --long and other arguments")
    if not quick:
        preparation.prepare_templates(settings())
    failed = [] if context.args else [name for name, argv in _LINTERS.items() if not _run(name, argv)]
    selection = _QUICK if quick else [] if long else ["-m", "not long"]
    run = _pytest if quick or context.args else all_tests
    status = run("--durations=15", *selection, *context.args)
    if failed:
        output.error(f"{', '.join(failed)} failed; the output is above the tests")
    raise typer.Exit(status or (1 if failed else 0))


_TESTS_FAILED = 1  # pytest's exit code; others mean that it could not do its work
_MOST_FLAKY = 10  # more failures than these are no accident
_QUICK = (
    *("tests/unit", "tests/guest", "tests/contract"),
    *("tests/test_architecture.py", "tests/test_docs.py", "tests/test_glossary.py"),
    *("-k", "not (postgresql or gvisor or container or slots)"),  # those of the contracts that need more than fakes
)
_LINTERS = {
    "ruff check": ("ruff", "check", "."),
    "ruff format": ("ruff", "format", "--check", "."),
    "mypy": ("mypy",),
}


def _run(name: str, argv: Sequence[str]) -> bool:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-m", *argv], cwd=ROOT, env=clean_environment(), check=False)
    if done.returncode == 0:
        output.done(f"{name} ({time.monotonic() - began:.0f} s)")
    return done.returncode == 0


def all_tests(*arguments: str) -> int:
    """Run pytest, and what failed once more. Returns the exit code."""
    status = _pytest(*arguments)
    return _second_chance() if status == _TESTS_FAILED else status


def _pytest(*arguments: str) -> int:
    argv = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(argv, cwd=ROOT, env=clean_environment(), check=False).returncode


def _second_chance() -> int:
    """Run a few failed tests once more, alone. What passes now is told as flaky, and does not fail the run."""
    names = _failed_tests()
    if not 0 < len(names) <= _MOST_FLAKY:
        return _TESTS_FAILED
    output.error(f"{len(names)} failed; they run once more, alone")
    status = _pytest("--last-failed", "--last-failed-no-failures", "none")
    if status == 0:
        for name in names:
            output.error(f"FLAKY: {name} failed in the whole run and passed alone. Find out why.")
    return status


def _failed_tests() -> Sequence[str]:
    try:
        return sorted(json.loads((ROOT / ".pytest_cache/v/cache/lastfailed").read_text()))
    except (OSError, ValueError):
        return ()


def clean_environment() -> dict[str, str]:
    """The caller's, without secrets and without settings of the caller's own instance."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or not (_SECRET.search(name) or name.startswith("SANDLOT_") or name == "NO_COLOR")
    }
