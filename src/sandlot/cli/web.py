"""The commands for those who work on the console's source: a development server with hot reload, and the build."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from sandlot.cli import client
from sandlot.cli.options import of_instance, settings
from sandlot.cli.output import Failure
from sandlot.data_files import SOURCES

app = typer.Typer(no_args_is_help=True, help="Work on the console's source (needs Node.js 20.19 or newer).")
WEB = SOURCES.parent / "web"


@app.command()
@of_instance
def dev(
    listen: Annotated[int, typer.Option("--listen", help="The development server's own port.")] = 5173,
) -> None:
    """Serve the console from its source, with hot reload, against the running server of this instance."""
    server = client.running(settings()).url
    program = prepared()
    command = [str(program), "--port", str(listen), "--strictPort"]
    raise typer.Exit(subprocess.run(command, cwd=WEB, env={**os.environ, "SANDLOT_WEB_SERVER": server}).returncode)


@app.command()
def build() -> None:
    """Build the console into the package. Commit the result together with the source."""
    _need_source()
    raise typer.Exit(subprocess.run([WEB / "bin" / "rebuild"]).returncode)


def prepared() -> Path:
    """Vite's program, with all packages of the lock file installed."""
    _need_source()
    if not (WEB / "node_modules").is_dir():
        done = subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=WEB)
        if done.returncode:
            raise Failure("npm could not install the console's packages; its messages are above")
    return WEB / "node_modules" / ".bin" / "vite"


def _need_source() -> None:
    if not WEB.is_dir():
        raise Failure("the console's source is not here: it comes with the checkout, not with an installed package")
    if shutil.which("npm") is None:
        raise Failure("Node.js is not installed; only who changes the console's source needs it (20.19 or newer)")
