"""The command that opens the console: a one-time login link for the server of this instance."""

from __future__ import annotations

import os
import subprocess
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sandlot.cli import client, output, web
from sandlot.cli.options import Json, of_instance, settings

if TYPE_CHECKING:
    from sandlot.settings import Settings


@of_instance
def console(
    *,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in a browser of this machine.")] = False,
    screenshots: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write pictures of every page there instead (needs Chromium and the source)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print a link that logs a browser in to the console as an admin. It works once, for ten minutes."""
    made = login_link(settings())
    if screenshots is not None:
        raise typer.Exit(_photograph(made["url"], client.running(settings()).url, screenshots.absolute()))
    if as_json:
        output.print_json(made)
    else:
        print(made["url"])
    if open_browser and not webbrowser.open(made["url"]):
        output.warn("there is no browser to open here; open the link yourself")


def login_link(chosen: Settings) -> dict[str, str]:
    made = client.send(chosen, "POST", "/console/links")
    return {"url": client.running(chosen).url + made["path"], "expires_at": made["expires_at"]}


def _photograph(link: str, server: str, directory: Path) -> int:
    """Every page in both themes, on a desktop and on a phone."""
    web.prepared()
    environment = {**os.environ, "CONSOLE_URL": server, "CONSOLE_LINK": link}
    return subprocess.run(["node", "tests/screenshots.mjs", directory], cwd=web.WEB, env=environment).returncode
