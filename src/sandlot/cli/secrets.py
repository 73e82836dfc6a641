"""The commands about secrets. A value is read from standard input, a prompt or a variable, never from the command line."""

from __future__ import annotations

import getpass
import os
import sys
import urllib.parse
from typing import Annotated

import typer

from sandlot.cli import client, output
from sandlot.cli.options import Json, of_instance, settings
from sandlot.cli.output import Failure
from sandlot.program import SANDLOT

app = typer.Typer(
    no_args_is_help=True, help="Keep values that leave with requests of sandboxes, and are never inside them."
)
Name = Annotated[str, typer.Argument(help="The secret's name.")]


@app.command("set")
@of_instance
def set_(
    *,
    name: Name,
    env: Annotated[str | None, typer.Option(help="Take the value from this variable. Unset: standard input.")] = None,
) -> None:
    """Make a secret, or give it a new value: `./sandlot secret set github-token < token.txt`."""
    value, chosen = _value(env), settings()
    try:
        made = client.send(chosen, "POST", "/secrets", {"name": name, "value": value})
    except client.Refused as refusal:
        if refusal.code != 409:
            raise
        made = client.send(chosen, "POST", _path(name), {"value": value})
    output.done(f"{made['name']} has version {made['currentVersion']}")


@app.command("list")
@of_instance
def list_(*, as_json: Json = False) -> None:
    """List secrets: names, versions and when each was last used. Values are never shown."""
    found = client.rows(settings(), "/secrets")
    if as_json:
        output.print_json(found)
        return
    rows = [(each["name"], each["currentVersion"], each["updatedAt"], each.get("lastUsedAt")) for each in found]
    output.print_table(("name", "version", "updated", "last used"), rows, "No secrets.")


@app.command()
@of_instance
def delete(*, name: Name) -> None:
    """Delete a secret. Requests that need it are refused from now on."""
    client.send(settings(), "DELETE", _path(name))
    output.done(f"{name} is deleted")


def _path(name: str) -> str:
    return f"/secrets/{urllib.parse.quote(name, safe='')}"


def _value(env: str | None) -> str:
    if env is not None:
        value = os.environ.get(env, "")
        if not value:
            raise Failure(f"the variable {env} is not set")
    elif sys.stdin.isatty():
        value = getpass.getpass("Value: ")
    else:
        value = sys.stdin.read(1 << 20)
    value = value.rstrip("\r\n")
    if not value:
        raise Failure(f"there is no value; give it on standard input: {SANDLOT} secret set NAME < FILE")
    return value
