"""The commands about rules that make tasks."""

from __future__ import annotations

import json
import urllib.parse
from pathlib import Path
from typing import Annotated, Any

import typer

from sandlot.cli import client, output
from sandlot.cli.options import Json, of_instance, settings
from sandlot.cli.output import Failure

app = typer.Typer(no_args_is_help=True, help="Rules: when something happens at GitHub, or a time comes, make a task.")
Name = Annotated[str, typer.Argument(help="The rule, as in `trigger list`.")]


@app.command("list")
@of_instance
def list_(*, as_json: Json = False) -> None:
    """List them, in the order in which they are looked through."""
    rows = client.get(settings(), "/triggers")["triggers"]
    if as_json:
        output.print_json(rows)
        return
    table = [
        (
            row["name"],
            row["when"],
            ", ".join(row["repositories"]) or "all",
            "sandlot.toml" if row["is_of_file"] else "API",
            f"paused: {row['paused_reason']}" if row["paused_at"] else "active",
        )
        for row in rows
    ]
    output.print_table(("name", "when", "repositories", "from", "state"), table, "No rules.")


@app.command()
@of_instance
def create(
    *,
    file: Annotated[
        Path, typer.Argument(help="A JSON file with the rule's keys, as in `trigger list --json`; - is stdin.")
    ],
    as_json: Json = False,
) -> None:
    """Add one. Its keys are those of [[triggers]] in sandlot.toml."""
    try:
        text = typer.get_text_stream("stdin").read() if str(file) == "-" else file.read_text()
        body = json.loads(text)
    except (OSError, ValueError) as error:
        raise Failure(f"{file} cannot be read as JSON: {error}", status=2) from error
    _told(client.send(settings(), "POST", "/triggers", body), as_json, "is there")


@app.command()
@of_instance
def pause(*, name: Name, as_json: Json = False) -> None:
    """Let it make no tasks until it is resumed."""
    _told(client.send(settings(), "POST", f"{_path(name)}/pause", {}), as_json, "pauses")


@app.command()
@of_instance
def resume(*, name: Name, as_json: Json = False) -> None:
    """Let it go on; what failed before does not count any more."""
    _told(client.send(settings(), "POST", f"{_path(name)}/resume", {}), as_json, "is active")


@app.command()
@of_instance
def delete(*, name: Name) -> None:
    """Remove one that came over the API. Those of sandlot.toml change there."""
    client.send(settings(), "DELETE", _path(name), None)
    output.done(f"{name} is gone")


def _path(name: str) -> str:
    return f"/triggers/{urllib.parse.quote(name, safe='')}"


def _told(record: Any, as_json: bool, words: str) -> None:
    if as_json:
        output.print_json(record)
    else:
        output.done(f"{record['name']} {words}")
