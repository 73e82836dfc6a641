"""The commands about repositories and their pull requests."""

from __future__ import annotations

import os
import urllib.parse
from datetime import datetime
from typing import Annotated, Any

import typer

from sandlot.cli import client, diffs, output
from sandlot.cli.options import Json, of_instance, settings
from sandlot.cli.output import Failure
from sandlot.program import SANDLOT

repositories = typer.Typer(no_args_is_help=True, help="Repositories that tasks work on: hosted here, or elsewhere.")
pulls = typer.Typer(no_args_is_help=True, help="Pull requests of a repository.")

Name = Annotated[str, typer.Argument(metavar="NAME", help=f"The repository, as in `{SANDLOT} repo list`.")]
Number = Annotated[int, typer.Argument(min=1, help="The pull request's number.")]


@repositories.command()
@of_instance
def add(
    *,
    url: Annotated[str, typer.Argument(help="Where it is: https://github.com/you/app, or any git server.")],
    name: Annotated[str | None, typer.Option(help="What it is called here. Default: the end of its address.")] = None,
    token_env: Annotated[
        str | None, typer.Option(help="The environment variable that holds the token, here or in the server.")
    ] = None,
    forge: Annotated[str | None, typer.Option(help="github or remote. Default: told by the address.")] = None,
    app: Annotated[
        bool | None, typer.Option("--app/--no-app", help="Use the server's GitHub App. Default: without a token.")
    ] = None,
    branch: Annotated[str | None, typer.Option(help="Where tasks start. Default: its own default branch.")] = None,
    as_json: Json = False,
) -> None:
    """Add a repository that is elsewhere. The token is kept by the server and never enters a sandbox."""
    chosen = name or url.rstrip("/").rsplit("/", 1)[-1].removesuffix(".git")
    body: dict[str, Any] = {"name": chosen, "url": url, "forge": forge, "github_app": app, "default_branch": branch}
    if token_env is not None:
        # The variable of whoever types this, if there is one; else the server looks it up in its own environment.
        here = os.environ.get(token_env)
        body |= {"token": here} if here else {"token_env": token_env}
    _shown(client.send(settings(), "POST", "/repositories", _given(body)), as_json)


@repositories.command()
@of_instance
def create(
    *,
    name: Annotated[str, typer.Argument(help="What it is called.")],
    branch: Annotated[str | None, typer.Option(help="Its default branch. Default: main.")] = None,
    empty: Annotated[bool, typer.Option(help="Without a first commit, to push a history of your own.")] = False,
    as_json: Json = False,
) -> None:
    """Make a repository that this server hosts."""
    body = {"name": name, "default_branch": branch, "empty": empty}
    _shown(client.send(settings(), "POST", "/repositories", _given(body)), as_json)


@repositories.command("list")
@of_instance
def list_(*, as_json: Json = False) -> None:
    """List repositories."""
    rows = client.get(settings(), "/repositories")["repositories"]
    if as_json:
        output.print_json(rows)
        return
    table = [(row["name"], row["forge"], row["default_branch"], row["clone_url"]) for row in rows]
    output.print_table(("name", "forge", "branch", "address"), table, "No repositories.")


@repositories.command()
@of_instance
def show(*, name: Name, as_json: Json = False) -> None:
    """Show one repository and its branches."""
    chosen = settings()
    record = client.get(chosen, _path(name))
    record["branches"] = client.get(chosen, f"{_path(name)}/branches")["branches"]
    if as_json:
        output.print_json(record)
        return
    output.print_record({**record, "branches": ", ".join(each["name"] for each in record["branches"]) or None})


@repositories.command()
@of_instance
def remove(*, name: Name, as_json: Json = False) -> None:
    """Forget a repository. One that is hosted here is deleted, with its pull requests."""
    client.send(settings(), "DELETE", _path(name))
    if as_json:
        output.print_json({"name": name, "removed": True})
        return
    output.done(f"{name} is removed")


@pulls.command("list")
@of_instance
def list_pulls(
    *,
    name: Name,
    state: Annotated[str | None, typer.Option(help="open, merged or closed. Default: all.")] = None,
    as_json: Json = False,
) -> None:
    """List pull requests, the newest first."""
    if state not in (None, "open", "merged", "closed"):
        raise Failure("--state is open, merged or closed", status=2)
    rows = client.get(settings(), f"{_path(name)}/pulls" + (f"?state={state}" if state else ""))["pulls"]
    if as_json:
        output.print_json(rows)
        return
    table = [
        (row["number"], row["state"], row["title"], row["head"], output.age(datetime.fromisoformat(row["created_at"])))
        for row in rows
    ]
    output.print_table(("number", "state", "title", "head", "age"), table, "No pull requests.")


@pulls.command("show")
@of_instance
def show_pull(*, name: Name, number: Number, as_json: Json = False) -> None:
    """Show one pull request with its checks and comments."""
    record = client.get(settings(), f"{_path(name)}/pulls/{number}")
    if as_json:
        output.print_json(record)
        return
    checks = ", ".join(f"{each['name']}: {each['status']}" for each in record["checks"]) or None
    fields = ("number", "title", "state", "draft", "head", "base", "author", "mergeable", "url", "created_at")
    output.print_record({**{field: record[field] for field in fields}, "checks": checks})
    if record["body"]:
        print(f"\n{output.plain(record['body'])}")
    for each in record["comments"]:
        where = f" {each['path']}:{each['line']}" if each["path"] else ""
        print(f"\n{output.plain(each['author'])}{output.plain(where)}: {output.plain(each['body'])}")


@pulls.command()
@of_instance
def diff(*, name: Name, number: Number, as_json: Json = False) -> None:
    """Print what it changes."""
    record = client.get(settings(), f"{_path(name)}/pulls/{number}/diff")
    if as_json:
        output.print_json(record)
        return
    diffs.print_diff(record)


@pulls.command()
@of_instance
def merge(*, name: Name, number: Number, as_json: Json = False) -> None:
    """Merge it."""
    record = client.send(settings(), "POST", f"{_path(name)}/pulls/{number}/merge", {})
    if as_json:
        output.print_json(record)
        return
    output.done(f"pull request {number} is merged")


@pulls.command()
@of_instance
def close(*, name: Name, number: Number, as_json: Json = False) -> None:
    """Close it without merging."""
    record = client.send(settings(), "POST", f"{_path(name)}/pulls/{number}/close", {})
    if as_json:
        output.print_json(record)
        return
    output.done(f"pull request {number} is closed")


@pulls.command()
@of_instance
def comment(
    *,
    name: Name,
    number: Number,
    text: Annotated[str, typer.Argument(help="What to say.")],
    path: Annotated[str | None, typer.Option(help="The file it is about.")] = None,
    line: Annotated[int | None, typer.Option(min=1, help="The line of that file.")] = None,
    as_json: Json = False,
) -> None:
    """Comment on it."""
    body = _given({"body": text, "path": path, "line": line})
    record = client.send(settings(), "POST", f"{_path(name)}/pulls/{number}/comments", body)
    if as_json:
        output.print_json(record)
        return
    output.done("the comment is there")


def _path(name: str) -> str:
    return f"/repositories/{urllib.parse.quote(name, safe='')}"


def _given(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}


def _shown(record: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.print_json(record)
    else:
        output.print_record(record)
