"""The commands about browsers: list, create, end, and the address at which one is looked at."""

from __future__ import annotations

import webbrowser
from typing import Annotated
from urllib.parse import quote

import typer

from sandlot.cli import client, output
from sandlot.cli.options import Json, of_instance, settings

app = typer.Typer(no_args_is_help=True, help="Browsers as a service, by Browserbase's API.")
BASE = "/browserbase/v1/sessions"
BrowserId = Annotated[str, typer.Argument(metavar="ID", help="The session's id.")]


@app.command("list")
@of_instance
def list_(
    *,
    everything: Annotated[bool, typer.Option("--all", help="Also those that have ended.")] = False,
    as_json: Json = False,
) -> None:
    """Show the browsers that run."""
    rows = client.get(settings(), BASE if everything else f"{BASE}?status=RUNNING")
    if as_json:
        output.print_json(rows)
        return
    table = [(r["id"], r["status"], r["projectId"], r["createdAt"][:19], r.get("problem") or "") for r in rows]
    output.print_table(("id", "status", "user", "created", "remark"), table, "No browser runs.")


@app.command()
@of_instance
def create(
    *,
    user: Annotated[str | None, typer.Option(help="Whose it is.")] = None,
    timeout: Annotated[int | None, typer.Option(min=60, max=21600, help="Seconds until it ends.")] = None,
    as_json: Json = False,
) -> None:
    """Start a browser that is kept until it is ended, and print where Playwright and Puppeteer connect to."""
    asked = {"keepAlive": True, "projectId": user, "timeout": timeout}
    made = client.send(settings(), "POST", BASE, {name: value for name, value in asked.items() if value is not None})
    if as_json:
        output.print_json(made)
    else:
        print(f"{made['id']}\n{made['connectUrl']}")


@app.command()
@of_instance
def end(id: BrowserId, *, as_json: Json = False) -> None:
    """End a browser."""
    ended = client.send(settings(), "POST", f"{BASE}/{quote(id, safe='')}", {"status": "REQUEST_RELEASE"})
    if as_json:
        output.print_json(ended)
    else:
        print(f"{ended['id']}: {ended['status']}")


@app.command("open")
@of_instance
def open_(id: BrowserId, *, as_json: Json = False) -> None:
    """Print the address at which a browser is looked at, for an hour; open it if this machine has a browser."""
    found = client.get(settings(), f"{BASE}/{quote(id, safe='')}/debug")
    if as_json:
        output.print_json(found)
        return
    print(found["debuggerUrl"])
    webbrowser.open(found["debuggerUrl"])
