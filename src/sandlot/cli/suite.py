"""The test command: everything that CI checks, in one go, on a fresh machine too."""

from __future__ import annotations

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
) -> None:
    """Check everything: lint, types and all tests. More arguments go to pytest, and then only pytest runs."""
    if not (ROOT / "tests").is_dir():
        raise Failure("the tests are not here: they come with the source, not with an installed package")
    preparation.require_root()
    preparation.install_packages("run", "domain", "test")
    preparation.prepare_templates(settings())
    failed = [] if context.args else [name for name, argv in _LINTERS.items() if not _run(name, argv)]
    selection = [] if long else ["-m", "not long"]
    argv = [sys.executable, "-m", "pytest", "--durations=15", *selection, *context.args]
    status = subprocess.run(argv, cwd=ROOT, env=clean_environment(), check=False).returncode
    if failed:
        output.error(f"{', '.join(failed)} failed; the output is above the tests")
    raise typer.Exit(status or (1 if failed else 0))


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


def clean_environment() -> dict[str, str]:
    """The caller's, without secrets and without settings of the caller's own instance."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or not (_SECRET.search(name) or name.startswith("SANDLOT_") or name == "NO_COLOR")
    }
