"""The commands about API keys. They open the store themselves, so they work whether the server runs or not."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sandlot.cli import output
from sandlot.cli.databases import with_database
from sandlot.cli.options import Json, of_instance
from sandlot.program import SANDLOT

if TYPE_CHECKING:
    from sandlot.engine.control.access import Access
    from sandlot.engine.core.model import Key

T = TypeVar("T")
app = typer.Typer(no_args_is_help=True, help="Make, list and revoke API keys.")


@app.command()
@of_instance
def create(
    *,
    name: Annotated[str, typer.Argument(help="What it is for; shown in lists.")],
    team: Annotated[str | None, typer.Option(help="Whose it is, by name or id. Unset: the first team's.")] = None,
    as_json: Json = False,
) -> None:
    """Make a key and print it. It is shown this once: only its digest is kept."""

    async def make(access: Access) -> tuple[Key, str]:
        owner = await (access.team(team) if team else access.ensure_first_team())
        return await access.create_key(owner.id, name)

    key, secret = with_access(make)
    if as_json:
        output.print_json({**_shown(key), "key": secret})
        return
    print(secret)
    output.say(f"Key {key.id} ({key.name}). Keep it now: it cannot be shown again.")


@app.command("list")
@of_instance
def list_(
    *,
    everything: Annotated[bool, typer.Option("--all", help="Revoked ones too.")] = False,
    team: Annotated[str | None, typer.Option(help="Only this team's, by name or id.")] = None,
    as_json: Json = False,
) -> None:
    """List keys: enough of each to recognise it."""

    async def read(access: Access) -> tuple[list[Key], dict[str, str]]:
        owner = await access.team(team) if team else None
        found = await access.keys(owner.id if owner else None)
        names = {each.id: each.name for each in await access.teams()}
        return [key for key in found if everything or key.revoked_at is None], names

    keys, names = with_access(read)
    if as_json:
        output.print_json([{**_shown(key), "team": names.get(key.team_id)} for key in keys])
        return
    rows = [
        (key.id, names.get(key.team_id), key.name, key.hint, key.created_at, key.last_used_at, key.revoked_at)
        for key in keys
    ]
    output.print_table(("id", "team", "name", "key", "created", "last used", "revoked"), rows, "No keys.")


@app.command()
@of_instance
def revoke(*, id: Annotated[str, typer.Argument(help=f"The key's id, as in `{SANDLOT} key list`.")]) -> None:
    """Make a key invalid. A running server may still accept it for a few seconds."""

    async def end(access: Access) -> None:
        await access.revoke(id)

    with_access(end)
    output.done(f"{id} is revoked")


def _shown(key: Key) -> dict[str, Any]:
    return {name: value for name, value in asdict(key).items() if name != "digest"}


def with_access(act: Callable[[Access], Coroutine[Any, Any, T]]) -> T:
    from sandlot.engine.control.access import Access
    from sandlot.engine.store import Database, SqlAccess

    return with_database(Database, lambda database: act(Access(store=SqlAccess(database), clock=_now)))


def _now() -> datetime:
    return datetime.now(UTC)
