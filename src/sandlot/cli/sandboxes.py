"""The commands about sandboxes: run one command in a new one; list, look at, use and end those there are."""

from __future__ import annotations

import json
import urllib.parse
from datetime import datetime
from typing import Annotated, Any

import typer

from sandlot.cli import client, execution, output
from sandlot.cli.options import Json, of_instance, settings
from sandlot.cli.output import Failure
from sandlot.program import SANDLOT

app = typer.Typer(no_args_is_help=True, help="List, look at, use and end sandboxes.")

Words = Annotated[list[str], typer.Argument(metavar="COMMAND", help="The command and its arguments, best after `--`.")]
Id = Annotated[str, typer.Argument(metavar="ID", help=f"The sandbox's id, as in `{SANDLOT} sandbox list`.")]
Env = Annotated[list[str], typer.Option("--env", "-e", metavar="NAME=VALUE", help="Set a variable; may be repeated.")]
User = Annotated[str | None, typer.Option("--user", "-u", help="Who runs it inside. Default: the template's user.")]
Cwd = Annotated[str | None, typer.Option("--cwd", "-w", help="Where it runs inside. Default: the user's home.")]


@of_instance
def run(
    *,
    words: Words,
    template: Annotated[str | None, typer.Option("--template", "-t", help="What to start from. Default: base.")] = None,
    env: Env = [],  # noqa: B006 - typer copies it
    user: User = None,
    cwd: Cwd = None,
    timeout: Annotated[int, typer.Option(min=1, help="Most seconds that it may live.")] = 3600,
    internet: Annotated[bool, typer.Option(help="Whether the sandbox reaches the internet.")] = True,
) -> None:
    """Run one command in a new sandbox: its output comes as it is written, its exit status is yours, nothing stays.

    Input is passed on when it is piped: `echo 1+1 | ./sandlot run -- python3`.
    """
    sandbox = client.sdk(settings())
    variables = execution.parse_env(env)

    def create() -> Any:
        return sandbox.create(template, timeout=timeout, allow_internet_access=internet)

    job = execution.Execution(create, words, envs=variables, user=user, cwd=cwd)
    raise typer.Exit(job.run(remove=True))


@app.command("exec")
@of_instance
def exec_(*, id: Id, words: Words, env: Env = [], user: User = None, cwd: Cwd = None) -> None:  # noqa: B006
    """Run a command in a sandbox that is there. Ctrl-C ends the command, not the sandbox."""
    chosen = settings()
    sandbox = client.sdk(chosen)
    variables = execution.parse_env(env)
    remaining = _seconds_left(client.get(chosen, _path(id)))  # so that connecting does not change its deadline
    job = execution.Execution(lambda: sandbox.connect(id, timeout=remaining), words, envs=variables, user=user, cwd=cwd)
    raise typer.Exit(job.run(remove=False))


@app.command("list")
@of_instance
def list_(*, as_json: Json = False) -> None:
    """List sandboxes, the newest first."""
    rows = client.sandboxes(settings())
    if as_json:
        output.print_json(rows)
        return
    table = [
        (
            row["sandboxID"],
            row["state"],
            row.get("alias") or row["templateID"],
            output.age(_time(row["startedAt"])),
            _left(row),
        )
        for row in rows
    ]
    output.print_table(("id", "state", "template", "age", "time left"), table, "No sandboxes.")


@app.command()
@of_instance
def info(*, id: Id, as_json: Json = False) -> None:
    """Show all that is known of one sandbox."""
    record = client.get(settings(), _path(id))
    if as_json:
        output.print_json(record)
        return
    # The access tokens are for programs (--json), not for whoever looks over a shoulder.
    shown = {name: value for name, value in record.items() if not name.lower().endswith("token")}
    flat = {name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in shown.items()}
    output.print_record(flat)


@app.command()
@of_instance
def logs(*, id: Id, as_json: Json = False) -> None:
    """Print what happened in a sandbox, oldest first."""
    entries = client.get(settings(), f"/v2{_path(id)}/logs?limit=1000")["logs"]
    if as_json:
        output.print_json(entries)
        return
    for entry in entries:
        level = str(entry.get("level", "info"))
        text = "".join(c if c.isprintable() or c == "\t" else "�" for c in str(entry["message"]))
        print(f"{entry['timestamp']}  {level:<5}  {text}")
    if not entries:
        output.say("No logs.")


@app.command()
@of_instance
def egress(
    *,
    id: Id,
    as_json: Json = False,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="Print an entry in each line, as JSON.")] = False,
) -> None:
    """Print what left a sandbox, oldest first: where to, how much, under which rule, with which secrets, or why not."""
    entries: list[dict[str, Any]] = []
    while True:
        after = entries[-1]["number"] if entries else 0
        page = client.get(settings(), f"{_path(id)}/egress?after={after}")
        if jsonl:
            for entry in page["entries"]:
                print(json.dumps(entry))
        entries += page["entries"]
        if not page["entries"]:
            break
    if as_json:
        output.print_json({"entries": entries, "leftOut": page["leftOut"]})
    elif not jsonl:
        rows = [
            (
                entry["at"],
                f"{entry['host']}:{entry['port']}",
                entry["connections"],
                "allowed" if entry["allowed"] else f"denied: {entry['reason']}",
                entry["bytesOut"],
                entry["bytesIn"],
                entry["rule"],
                ", ".join(entry["secrets"]),
            )
            for entry in entries
        ]
        titles = ("at", "host", "connections", "outcome", "bytes out", "bytes in", "rule", "secrets")
        output.print_table(titles, rows, "Nothing was noted.")
    if page["leftOut"]:
        output.say(f"{page['leftOut']} more connections were counted and left out.")


@app.command()
@of_instance
def kill(
    *,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Sandboxes to end.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="End all of them.")] = False,
) -> None:
    """End sandboxes and remove all they hold."""
    chosen = settings()
    if everything:
        output.done(f"{client.end_all(chosen)} ended")
        return
    if not ids:
        raise Failure(f"name the sandboxes to end, or say --all. `{SANDLOT} sandbox list` shows them", status=2)
    sandbox = client.sdk(chosen)
    unknown = [id for id in ids if not sandbox.kill(id)]
    for id in ids:
        if id not in unknown:
            output.done(f"{id} ended")
    if unknown:
        raise Failure(f"no such sandbox: {', '.join(unknown)}. `{SANDLOT} sandbox list` shows those there are")


def _path(id: str) -> str:
    return f"/sandboxes/{urllib.parse.quote(id, safe='')}"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _seconds_left(row: dict[str, Any]) -> int:
    end = _time(row["endAt"])
    return max(1, int((end - datetime.now(end.tzinfo)).total_seconds()))


def _left(row: dict[str, Any]) -> str | None:
    if row["state"] != "running":
        return None
    seconds = _seconds_left(row)
    return f"{seconds // 3600}h {seconds // 60 % 60}m" if seconds >= 3600 else f"{seconds // 60}m {seconds % 60}s"
