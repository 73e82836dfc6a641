"""The commands about teams. They open the store themselves, so they work whether the server runs or not."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandlot.cli import output
from sandlot.cli.keys import with_access
from sandlot.cli.options import Json, of_instance
from sandlot.program import SANDLOT

if TYPE_CHECKING:
    from sandlot.engine.control.access import Access
    from sandlot.engine.core.model import Team

app = typer.Typer(
    no_args_is_help=True, help="Make, list and delete teams: each sees only its own sandboxes and templates."
)


@app.command()
@of_instance
def create(
    *,
    name: Annotated[str, typer.Argument(help="Lower-case letters, digits and '-'; its public templates are NAME/...")],
    as_json: Json = False,
) -> None:
    """Make a team. It has no key yet."""

    async def make(access: Access) -> Team:
        return await access.create_team(name)

    team = with_access(make)
    if as_json:
        output.print_json(asdict(team))
        return
    print(team.id)
    output.say(f"Team {team.name}. `{SANDLOT} key create NAME --team {team.name}` makes a key for it.")


@app.command("list")
@of_instance
def list_(*, as_json: Json = False) -> None:
    """List teams, oldest first. The first is the operator's own."""

    async def read(access: Access) -> list[dict[str, Any]]:
        valid = [key.team_id for key in await access.keys() if key.revoked_at is None]
        return [{**asdict(team), "keys": valid.count(team.id)} for team in await access.teams()]

    found = with_access(read)
    if as_json:
        output.print_json(found)
        return
    rows = [(team["id"], team["name"], team["keys"], team["created_at"]) for team in found]
    output.print_table(("id", "name", "valid keys", "created"), rows, "No teams: the first start makes one.")


@app.command()
@of_instance
def delete(*, name: Annotated[str, typer.Argument(help="Its name or id.")]) -> None:
    """Delete a team with its keys. It must have no sandboxes, templates and snapshots any more.

    A running server may still accept its keys for a few seconds.
    """

    async def end(access: Access) -> Team:
        return await access.remove_team(name)

    output.done(f"team {with_access(end).name} is deleted")
