"""The commands about the platform: its keys, and starting it alone, against a provider elsewhere."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sandlot import __version__
from sandlot.cli import output
from sandlot.cli.databases import with_database
from sandlot.cli.options import Json, of_instance, settings
from sandlot.cli.output import Failure
from sandlot.program import SANDLOT

if TYPE_CHECKING:
    from sandlot.platform.audit.log import AuditLog
    from sandlot.platform.core.model import UserKey
    from sandlot.platform.identity.keys import Access

T = TypeVar("T")
# What the SDK would read behind the configuration's back.
_AMBIENT = ("E2B_API_URL", "E2B_SANDBOX_URL", "E2B_DOMAIN", "E2B_DEBUG", "E2B_HTTP_VERSION")
app = typer.Typer(no_args_is_help=True, help="The platform: users' keys, and starting it without an engine.")
keys = typer.Typer(no_args_is_help=True, help="Make, list and revoke keys of the platform's callers.")
app.add_typer(keys, name="key")


@app.command()
@of_instance
def serve() -> None:
    """Serve the platform alone, in the foreground, with the providers of sandlot.toml (SANDLOT_CONFIG)."""
    chosen = settings()
    for name in _AMBIENT:
        os.environ.pop(name, None)
    from sandlot.server import telemetry

    telemetry.configure_logging(chosen.log_level, chosen.log_format)
    asyncio.run(_serve())


@app.command("rotate-sealing-key")
@of_instance
def rotate_sealing_key() -> None:
    """Seal what is stored in secret (secrets, network rules, tokens of repositories, variables of waiting sessions) with a new key.

    The server must be down.
    """
    from sandlot.engine.store import Database as EngineDatabase
    from sandlot.platform.store import Database
    from sandlot.server import instance
    from sandlot.sql import sealing

    place = settings().data_dir
    if instance.holder(place) is not None:
        raise Failure(f"a server uses this data directory. Stop it first: {SANDLOT} down")
    sealing.renew(place)
    count = with_database(EngineDatabase, lambda database: database.seal_anew())
    count += with_database(Database, lambda database: database.seal_anew())
    sealing.forget_old(place)
    output.say(f"{count} stored values are sealed with a new key; the old keys are gone.")


async def _serve() -> None:
    from sandlot.platform.config import configuration
    from sandlot.platform.store import Database
    from sandlot.server.http import build_server
    from sandlot.wiring.combined import configuration_file
    from sandlot.wiring.platform import Setup, platform

    chosen = settings()
    file = configuration_file(chosen)
    if file is None:
        raise Failure(f"there is no {chosen.data_dir}/sandlot.toml: it says which providers to use (see docs/how-to)")
    setup = Setup(
        configuration=configuration.load(file, has_engine=False),
        database=Database.at(chosen.data_dir, chosen.database_url),
        version=__version__,
        data_dir=chosen.data_dir,
    )
    async with platform(setup) as made:
        server = build_server(made, host=chosen.host, port=chosen.port, before_shutdown=made.close)
        loops = asyncio.ensure_future(made.run())
        loops.add_done_callback(lambda _: setattr(server, "should_exit", True))
        try:
            await server.serve()
        finally:
            loops.cancel()
            await asyncio.gather(loops, return_exceptions=True)


@keys.command()
@of_instance
def create(
    *,
    user: Annotated[str | None, typer.Option(help="Whose key it is: it sees this user's sandboxes only.")] = None,
    name: Annotated[str, typer.Option(help="What it is for; shown in lists.")] = "key",
    scope: Annotated[list[str] | None, typer.Option(help="read, write, admin; may be repeated.")] = None,
    as_json: Json = False,
) -> None:
    """Make a key and print it. It is shown this once: only its digest is kept."""
    from sandlot.platform.core.model import Scope
    from sandlot.platform.identity.keys import ADMIN

    try:
        scopes = {Scope(one) for one in scope} if scope else {Scope.READ, Scope.WRITE}
    except ValueError as error:
        raise Failure(f"there is no such scope; there are {', '.join(Scope)}") from error

    async def made(access: Access, audit: AuditLog) -> tuple[UserKey, str]:
        key, secret = await access.create_key(name=name, user_id=user, scopes=scopes)
        await audit.write(ADMIN, "key.create", key.id, data={"user": user, "scopes": sorted(scopes)})
        return key, secret

    key, secret = _with_access(made)
    if as_json:
        output.print_json({**_shown(key), "key": secret})
        return
    print(secret)
    output.say(f"Key {key.id} ({user or 'admin'}). Keep it now: it cannot be shown again.")


@keys.command("list")
@of_instance
def list_(*, as_json: Json = False) -> None:
    """List keys: enough of each to recognise it."""

    async def read(access: Access, _: AuditLog) -> list[UserKey]:
        return [key for key in await access.keys() if key.revoked_at is None]

    found = _with_access(read)
    if as_json:
        output.print_json([_shown(key) for key in found])
        return
    rows = [(key.id, key.user_id, key.name, ",".join(sorted(key.scopes)), key.hint, key.created_at) for key in found]
    output.print_table(("id", "user", "name", "scopes", "key", "created"), rows, "No keys.")


@keys.command()
@of_instance
def revoke(*, id: Annotated[str, typer.Argument(help=f"The key's id, as in `{SANDLOT} platform key list`.")]) -> None:
    """Make a key invalid. A running server may still accept it for a few seconds."""
    from sandlot.platform.identity.keys import ADMIN

    async def revoked(access: Access, audit: AuditLog) -> None:
        await access.revoke(id)
        await audit.write(ADMIN, "key.revoke", id)

    _with_access(revoked)
    output.done(f"{id} is revoked")


def _shown(key: UserKey) -> dict[str, Any]:
    return {**{name: value for name, value in asdict(key).items() if name != "digest"}, "scopes": sorted(key.scopes)}


def _with_access(act: Callable[[Access, AuditLog], Coroutine[Any, Any, T]]) -> T:
    from sandlot.platform.audit.log import AuditLog
    from sandlot.platform.identity.keys import Access
    from sandlot.platform.store import Database, SqlAudit, SqlKeys

    def given(database: Database) -> Coroutine[Any, Any, T]:
        access = Access(store=SqlKeys(database), clock=_now)
        return act(access, AuditLog(store=SqlAudit(database), clock=_now))

    return with_database(Database, given)


def _now() -> datetime:
    return datetime.now(UTC)
