"""The commands about webhooks that came in from GitHub."""

from __future__ import annotations

import urllib.parse
from datetime import datetime
from typing import Annotated

import typer

from sandlot.cli import client, output
from sandlot.cli.options import Json, of_instance, settings
from sandlot.cli.output import Failure

app = typer.Typer(no_args_is_help=True, help="Webhooks that came in from GitHub, and what became of them.")
STATES = ("waiting", "done", "ignored", "failed")


@app.command("list")
@of_instance
def list_(
    *,
    status: Annotated[str | None, typer.Option(help="waiting, done, ignored or failed. Default: all.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many.")] = 50,
    as_json: Json = False,
) -> None:
    """List them, the newest first."""
    if status is not None and status not in STATES:
        raise Failure(f"--status is one of {', '.join(STATES)}", status=2)
    query = urllib.parse.urlencode({"limit": limit, **({"status": status} if status else {})})
    rows = client.get(settings(), f"/webhooks/github/deliveries?{query}")["deliveries"]
    if as_json:
        output.print_json(rows)
        return
    table = [
        (
            row["id"],
            ".".join(filter(None, (row["event"], row["action"]))),
            row["repository"],
            row["status"],
            output.age(datetime.fromisoformat(row["received_at"])),
            row["outcome"],
        )
        for row in rows
    ]
    output.print_table(("id", "event", "repository", "status", "age", "outcome"), table, "No webhooks.")


@app.command()
@of_instance
def replay(
    *, id: Annotated[str, typer.Argument(help="The delivery, as in `webhook list`.")], as_json: Json = False
) -> None:
    """Act on one once more."""
    path = f"/webhooks/github/deliveries/{urllib.parse.quote(id, safe='')}/replay"
    record = client.send(settings(), "POST", path, {})
    if as_json:
        output.print_json(record)
        return
    output.done(f"{id} is acted on once more")
