"""The bench command: has what the measurements need, and hands over to them."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from sandlot.cli import preparation
from sandlot.cli.options import settings
from sandlot.cli.output import Failure
from sandlot.cli.suite import ROOT, clean_environment

KINDS = {
    "run": "creates, commands and files beside Docker",
    "fast": "every goal of speed and resource use, warm and cold, beside Docker",
    "pause": "pauses, resumes and forks beside Docker",
    "templates": "builds beside `docker build`",
    "interpreter": "cells of the code interpreter beside a plain kernel",
    "desktop": "create to first screenshot of a desktop, beside a Docker container that starts the same",
    "browsers": "from `sessions.create` to a loaded page, beside a Chromium started by Playwright",
    "scale": "how many sandboxes one machine carries, and how cost grows",
    "tasks": "what a task costs beside the same by hand with Docker and git, clones, readers of timelines",
    "tunnel": "how fast sandboxes and the platform exchange bodies through a tunnel",
    "gateway": "calls of models through the gateway beside calls without it",
    "hostile": "what a second tenant notices of attacks",
    "trace": "where the time of a create goes",
}
HELP = frozenset({"--help", "-h"})
_HELP = "What to measure: " + "; ".join(f"`{name}`: {what}" for name, what in KINDS.items()) + "."


def bench(
    context: typer.Context,
    kind: Annotated[str, typer.Argument(help=_HELP)] = "run",
    trace: Annotated[bool, typer.Option("--trace", help="The same as `bench trace`.")] = False,
) -> None:
    """Measure this machine. More arguments go to the measurement; `bench KIND --help` lists them."""
    if kind in HELP:
        print(context.get_help())
        raise typer.Exit
    kind = "trace" if trace else kind
    if kind not in KINDS:
        raise Failure(f"{kind!r} is no measurement; there are: {', '.join(KINDS)}")
    if not (ROOT / "bench" / f"{kind}.py").is_file():
        raise Failure("the measurements are not here: they come with the source, not with an installed package")
    if not HELP.intersection(context.args):
        preparation.require_root()
        preparation.install_packages("run", "test")
        preparation.prepare_templates(settings())
    os.chdir(ROOT)
    # In this very process: who stops the command stops the measurement, which then takes its servers down.
    os.execve(sys.executable, [sys.executable, "-m", f"bench.{kind}", *context.args], clean_environment())
