"""The commands about the audit log: reading it, and checking that nobody changed it."""

from __future__ import annotations

from typing import Annotated

import typer

from sandlot.cli import client, output
from sandlot.cli.options import Json, of_instance, settings
from sandlot.cli.output import Failure

app = typer.Typer(no_args_is_help=True, help="Who did what: keys, repositories, tasks, budgets.")


@app.command("list")
@of_instance
def list_(
    *, limit: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 50, as_json: Json = False
) -> None:
    """Show the newest records."""
    rows = client.get(settings(), f"/audit?limit={limit}")["records"]
    if as_json:
        output.print_json(rows)
        return
    table = [(str(r["seq"]), r["at"][:19], r["actor"], r["action"], r["target"], str(r["status"])) for r in rows]
    output.print_table(("number", "at", "who", "did", "to", "status"), table, "Nothing was done yet.")


@app.command()
@of_instance
def verify(*, as_json: Json = False) -> None:
    """Follow the chain of digests through the whole log. Ends with status 1 if a record is missing or was changed."""
    found = client.get(settings(), "/audit/check")
    if as_json:
        output.print_json(found)
    elif found["problem"] is None:
        print(f"{found['records']} records, unbroken. The last digest is {found['digest']}")
    if found["problem"] is not None:
        raise Failure(f"the audit log is broken after {found['records']} records: {found['problem']}")
