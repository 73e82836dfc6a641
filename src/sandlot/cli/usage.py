"""The commands about what models cost: usage by group, budgets and their limits."""

from __future__ import annotations

import urllib.parse
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from sandlot.cli import client, output
from sandlot.cli.options import Json, of_instance, settings
from sandlot.cli.output import Failure

budgets = typer.Typer(no_args_is_help=True, help="How much users, sessions and everybody may spend on models.")
Scope = Annotated[str, typer.Argument(help="user, session or all.")]
Subject = Annotated[str, typer.Argument(help="The user or the session; nothing for all.")]


@of_instance
def usage(
    *,
    by: Annotated[
        str, typer.Option(help="user, task, session, agent, model, endpoint, repository, day, month; with commas.")
    ] = "model",
    days: Annotated[int, typer.Option(min=1, max=3660, help="How far to look back.")] = 30,
    user: Annotated[str | None, typer.Option(help="Of this user only.")] = None,
    task: Annotated[str | None, typer.Option(help="Of this task only.")] = None,
    as_json: Json = False,
) -> None:
    """Show what calls of models used and cost."""
    since = datetime.now(UTC) - timedelta(days=days)
    query: dict[str, Any] = {"by": by, "since": since.isoformat(), "user_id": user, "task": task}
    rows = client.get(settings(), f"/usage?{_encoded(query)}")["usage"]
    if as_json:
        output.print_json(rows)
        return
    groups = by.split(",")
    table = [
        (
            *(row["group"][name] or "-" for name in groups),
            str(row["calls"]),
            f"{row['input_tokens']:,}",
            f"{row['cached_tokens']:,}",
            f"{row['output_tokens']:,}",
            f"${row['cost_usd']:.4f}" + ("?" if row["unpriced_calls"] or row["estimated_calls"] else ""),
        )
        for row in rows
    ]
    output.print_table((*groups, "calls", "input", "cached", "output", "cost"), table, "No calls of models.")
    if any(row["unpriced_calls"] for row in rows):
        print("? the price of a model is not known, and a high one was taken; see [prices] in docs/how-to/models.md")


@budgets.command()
@of_instance
def show(*, user: Annotated[str | None, typer.Option(help="Of this user.")] = None, as_json: Json = False) -> None:
    """Show this month's budgets, and what is spent of them."""
    rows = client.get(settings(), f"/budgets?{_encoded({'user_id': user})}")["budgets"]
    if as_json:
        output.print_json(rows)
        return
    table = [
        (
            row["scope"],
            row["subject"],
            row["period"] or "-",
            f"${row['spent_usd']:.4f}",
            f"{row['spent_tokens']:,}",
            _limit(row["limit"]),
            f"{row['share']:.0%}",
        )
        for row in rows
    ]
    output.print_table(("scope", "subject", "month", "spent", "tokens", "limit", "used"), table, "No budgets.")


@budgets.command("set")
@of_instance
def set_(
    *,
    scope: Scope,
    subject: Subject = "*",
    usd: Annotated[float | None, typer.Option(min=0, help="Dollars.")] = None,
    tokens: Annotated[int | None, typer.Option(min=0, help="Tokens, input and output together.")] = None,
) -> None:
    """Set a limit instead of the configuration's: of a user or everybody for each month, of a session for its life."""
    if usd is None and tokens is None:
        raise Failure("say how much: --usd or --tokens. To remove a limit that was set: budget reset")
    client.send(settings(), "PUT", _path(scope, subject), {"cost_usd": usd, "tokens": tokens})


@budgets.command()
@of_instance
def reset(*, scope: Scope, subject: Subject = "*") -> None:
    """Let the configuration's limit count again."""
    client.send(settings(), "DELETE", _path(scope, subject))


def _path(scope: str, subject: str) -> str:
    return f"/budgets/{urllib.parse.quote(scope, safe='')}/{urllib.parse.quote(subject, safe='*')}"


def _limit(limit: dict[str, Any]) -> str:
    parts = [f"${limit['cost_usd']:.2f}"] if limit["cost_usd"] is not None else []
    parts += [f"{limit['tokens']:,} tokens"] if limit["tokens"] is not None else []
    return " and ".join(parts) or "none"


def _encoded(query: dict[str, Any]) -> str:
    return urllib.parse.urlencode({name: value for name, value in query.items() if value is not None})
