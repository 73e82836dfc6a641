"""The command line: the tree of commands, and the one place where failures become messages and exit codes."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from sandlot import __version__
from sandlot.cli import (
    audit,
    browsers,
    ci,
    compat,
    console,
    demo,
    doctor,
    keys,
    measuring,
    platform,
    repositories,
    sandboxes,
    secrets,
    server,
    suite,
    tasks,
    teams,
    templates,
    triggers,
    usage,
    web,
    webhooks,
)
from sandlot.cli.options import DataDir, Port, remember
from sandlot.cli.output import Failure, error
from sandlot.cli.reference import reference
from sandlot.program import CHECKOUT, SANDLOT
from sandlot.setup.packages import search_path

app = typer.Typer(
    name="sandlot",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown" if sys.stdout.isatty() else None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Sandboxes for AI agents on your own machine, driven by the official E2B SDKs.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"sandlot {__version__}")
        raise typer.Exit


@app.callback()
def everything(
    data_dir: DataDir = None,
    port: Port = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    remember(data_dir, port)


app.command(rich_help_panel="Server")(server.up)
app.command(rich_help_panel="Server")(server.down)
app.command(rich_help_panel="Server")(server.status)
app.command(rich_help_panel="Server")(server.env)
app.command(rich_help_panel="Server")(console.console)
app.command(rich_help_panel="Server")(demo.demo)
app.command(rich_help_panel="Server")(doctor.doctor)
app.command(hidden=True)(server.serve)
app.command(rich_help_panel="Sandboxes")(sandboxes.run)
app.add_typer(sandboxes.app, name="sandbox", rich_help_panel="Sandboxes")
app.add_typer(templates.app, name="template", rich_help_panel="Sandboxes")
app.add_typer(teams.app, name="team", rich_help_panel="Sandboxes")
app.add_typer(keys.app, name="key", rich_help_panel="Sandboxes")
app.add_typer(secrets.app, name="secret", rich_help_panel="Sandboxes")
app.command(rich_help_panel="Sandboxes")(ci.ci)
app.add_typer(tasks.app, name="task", rich_help_panel="Platform")
app.add_typer(repositories.repositories, name="repo", rich_help_panel="Platform")
app.add_typer(browsers.app, name="browser", rich_help_panel="Platform")
app.add_typer(repositories.pulls, name="pr", rich_help_panel="Platform")
app.command(rich_help_panel="Platform")(usage.usage)
app.add_typer(usage.budgets, name="budget", rich_help_panel="Platform")
app.add_typer(audit.app, name="audit", rich_help_panel="Platform")
app.add_typer(triggers.app, name="trigger", rich_help_panel="Platform")
app.add_typer(webhooks.app, name="webhook", rich_help_panel="Platform")
app.add_typer(platform.app, name="platform", rich_help_panel="Platform")
_PASSING_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
app.command(rich_help_panel="Development", context_settings=_PASSING_ON)(suite.test)
app.command(rich_help_panel="Development", context_settings=_PASSING_ON, add_help_option=False)(measuring.bench)
app.add_typer(compat.app, name="compat", rich_help_panel="Development")
app.command(rich_help_panel="Development")(reference)
app.add_typer(web.app, name="web", rich_help_panel="Development")


def main() -> None:
    if not sys.stdout.isatty():
        os.environ.setdefault("NO_COLOR", "1")
    os.environ["PATH"] = search_path()
    _name_the_program(app)
    try:
        app(prog_name=SANDLOT)
    except SystemExit as ended:
        _exit(ended.code)
    except Exception as failure:
        if os.environ.get("SANDLOT_LOG_LEVEL") == "debug":
            raise
        message, status = _explained(failure)
        error(message)
        _exit(status)


def _name_the_program(commands: typer.Typer) -> None:
    """Help is written for a checkout; an installed package has another name for the same program."""
    for command in commands.registered_commands:
        if command.callback is not None and command.callback.__doc__:
            command.callback.__doc__ = command.callback.__doc__.replace(CHECKOUT, SANDLOT)
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            _name_the_program(group.typer_instance)


def _exit(status: str | int | None) -> None:
    """The HTTP client of the SDK has threads that abort the process if the interpreter is taken down under them.

    Where it was used, the process ends without that.
    """
    if "pyqwest" in sys.modules and not isinstance(status, str):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status or 0)
    sys.exit(status)


def _explained(failure: Exception) -> tuple[str, int]:
    """What to tell about an error. Those of our own speak for themselves; the rest get a hint where to look."""
    if isinstance(failure, Failure):
        return str(failure), failure.status
    module = type(failure).__module__
    if module.startswith(("sandlot.", "e2b.")):
        return str(failure), 1
    if isinstance(failure, PermissionError):
        return f"{failure.filename or failure}: this user may not do that; use sudo", 1
    detail = f"{type(failure).__name__}: {failure}"
    return f"{detail}\nThis should not happen. SANDLOT_LOG_LEVEL=debug shows where; please report it", 70
