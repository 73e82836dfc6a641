"""The test command: everything that CI checks, in one go, on a fresh machine too."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from sandlot.cli import lanes, output, preparation
from sandlot.cli.lanes import Group
from sandlot.cli.options import settings
from sandlot.cli.output import Failure

ROOT = Path(__file__).resolve().parents[3]
# Tests must not spend anybody's money, nor take a real service for the one they started.
_SECRET = re.compile(
    r"(API_?KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)|^(E2B|ANTHROPIC|CLAUDE|OPENAI|CODEX|GEMINI|GOOGLE|AWS|AZURE|GITHUB)_"
)
LANES = 2
_KEPT = ("SANDLOT_CACHE_DIR", "SANDLOT_VENV", "SANDLOT_LAUNCHER")


def test(
    context: typer.Context,
    long: Annotated[
        bool, typer.Option("--long", help="Soaks and upstream's suites as well; takes much longer.")
    ] = False,
    at_once: Annotated[
        int, typer.Option("--lanes", min=1, max=8, help="How many groups of tests run side by side.")
    ] = LANES,
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
    if quick or context.args:
        status = _pytest("--durations=15", *selection, *context.args)
    else:
        status = all_tests(*selection, at_once=at_once)
    if failed:
        output.error(f"{', '.join(failed)} failed; the output is above the tests")
    raise typer.Exit(status or (1 if failed else 0))


@dataclass(frozen=True, slots=True)
class _Folder:
    """What the lanes should know of a folder of tests: about how long it takes, and in how many parts it may run."""

    seconds: float = 10
    parts: int = 1


_ABOUT = {
    "e2e": _Folder(600, 2),
    "tasks": _Folder(150),
    "cli": _Folder(100),
    **dict.fromkeys(("compat", "console", "forges", "security"), _Folder(60)),
    "agents": _Folder(80),
    "platform": _Folder(70),
    "templates": _Folder(65),
    "api": _Folder(50),
    "contract": _Folder(45),
    **dict.fromkeys(("tools", "schemas", "network", "interpreter"), _Folder(40)),
}
_WORLD = re.compile(r"^from tests\.network(\.world)? import", re.MULTILINE)
_LAST_FAILED = ".pytest_cache/v/cache/lastfailed"
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


def all_tests(*arguments: str, at_once: int = LANES) -> int:
    """Run all tests, a few groups at a time, and what failed once more, alone. Returns the exit code."""
    outcome = lanes.run(groups(), arguments, lanes=at_once, root=ROOT, environment=clean_environment())
    _note_failed(outcome.failed)
    return _second_chance() if outcome.status == _TESTS_FAILED else outcome.status


def groups() -> Sequence[Group]:
    """The folders of tests, each a group; of large ones, halves that take turns with the files."""
    tests = ROOT / "tests"
    found = []
    for folder in sorted({path.parent for path in tests.glob("**/test_*.py")}):
        name = folder.relative_to(ROOT).as_posix()
        files = sorted(path.relative_to(ROOT).as_posix() for path in folder.glob("test_*.py"))
        about = _ABOUT.get(folder.name, _Folder())
        for part in range(about.parts):
            found.append(
                Group(
                    name=name if about.parts == 1 else f"{name} ({part + 1} of {about.parts})",
                    paths=files[part :: about.parts],
                    seconds=about.seconds / about.parts,
                    resources=_resources(files[part :: about.parts]),
                )
            )
    return found


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


def _resources(files: Sequence[str]) -> frozenset[str]:
    """What tests need of the host that is there only once: the world of the network tests has fixed names and addresses."""
    uses_world = any(_WORLD.search((ROOT / file).read_text()) for file in files)
    return frozenset({"world"} if uses_world else ())


def _failed_tests() -> Sequence[str]:
    try:
        return sorted(json.loads((ROOT / _LAST_FAILED).read_text()))
    except (OSError, ValueError):
        return ()


def _note_failed(names: Sequence[str]) -> None:
    """Where pytest's own `--last-failed` finds them."""
    path = ROOT / _LAST_FAILED
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(dict.fromkeys(names, True)))


def clean_environment() -> dict[str, str]:
    """The caller's, without secrets and without settings of the caller's own instance."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or not (_SECRET.search(name) or name.startswith("SANDLOT_") or name == "NO_COLOR")
    }
