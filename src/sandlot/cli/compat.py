"""The compat command: has what the released clients need, and hands over to their scenarios."""

from __future__ import annotations

import os
import sys

import typer

from sandlot.cli import preparation
from sandlot.cli.options import settings
from sandlot.cli.output import Failure
from sandlot.cli.suite import ROOT, clean_environment

app = typer.Typer(no_args_is_help=True, help="Released clients of E2B, tried against this version.")


@app.callback()
def group() -> None:
    """Released clients of E2B, tried against this version."""


@app.command("run", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False)
def run(context: typer.Context) -> None:
    """Install a matrix of released SDKs, run every method of each, and write docs/reference/compatibility.md. `compat run --help` lists options."""
    if not (ROOT / "tests" / "compat").is_dir():
        raise Failure("the scenarios are not here: they come with the source, not with an installed package")
    if "--help" not in context.args:
        preparation.require_root()
        preparation.install_packages("run", "domain", "test")
        preparation.prepare_templates(settings())
    os.chdir(ROOT)
    # In this very process: who stops the command stops the run, which then takes its servers down.
    os.execve(sys.executable, [sys.executable, "-m", "tests.compat", *context.args], clean_environment())
