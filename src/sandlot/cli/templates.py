"""The commands about templates: what sandboxes can start from."""

from __future__ import annotations

import typer

from sandlot.cli import client, output
from sandlot.cli.options import Json, of_instance, settings

app = typer.Typer(no_args_is_help=True, help="What sandboxes can start from.")


@app.callback()
def group() -> None:
    """What sandboxes can start from."""


@app.command("list")
@of_instance
def list_(*, as_json: Json = False) -> None:
    """List templates."""
    rows = client.get(settings(), "/templates")
    if as_json:
        output.print_json(rows)
        return
    table = [
        (
            client.template_name(row),
            row["templateID"],
            row.get("cpuCount"),
            f"{row['memoryMB']} MiB" if row.get("memoryMB") else None,
            row.get("spawnCount", 0),
            row.get("updatedAt"),
        )
        for row in rows
    ]
    output.print_table(("name", "id", "cpus", "memory", "started", "updated"), table, "No templates.")
