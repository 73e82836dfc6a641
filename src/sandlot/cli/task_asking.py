"""What the commands about tasks share: common options, what was said, refusals explained, and answers shown."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandlot.cli import client, following, output
from sandlot.cli.client import Refused
from sandlot.cli.options import settings
from sandlot.cli.output import Failure
from sandlot.cli.timeline import painted_state
from sandlot.program import SANDLOT

if TYPE_CHECKING:
    from sandlot.settings import Settings

Follow = Annotated[
    bool,
    typer.Option(
        "--follow",
        "-f",
        help="Show what happens until it rests. Exit code: 0 in review or done, 1 failed, 2 needs you, 3 cancelled.",
    ),
]
PromptFile = Annotated[
    Path | None, typer.Option("--file", metavar="PATH", help="Read what is to be said from this file.")
]


def followed(
    chosen: Settings, task: dict[str, Any], *, after: int = 0, as_json: bool, full: bool = False
) -> typer.Exit:
    if as_json:
        return typer.Exit(following.exit_code(following.show_json(chosen, task, after=after)))
    if after == 0:
        output.say(f"Task {task['id']} in {output.plain(task['repository'])}: {output.plain(task['title'])}")
    return following.end(chosen, following.show(chosen, task, after=after, full=full))


@contextmanager
def explained(repository: str | None = None) -> Iterator[None]:
    """What to do about the usual refusals."""
    try:
        yield
    except Refused as error:
        text = str(error)
        if error.code == 404 and repository is not None and "repository" in text:
            raise Failure(f"{text}. See `{SANDLOT} repo list`; make one: {SANDLOT} repo create NAME") from error
        if error.code == 404 and "task" in text:
            raise Failure(f"{text}. `{SANDLOT} task list` shows those there are") from error
        raise


def text(text: str | None, file: Path | None = None) -> str | None:
    """What was said, on the command line or in a file."""
    if text is not None and file is not None:
        raise Failure("say it, or name a file that says it; not both", status=2)
    if file is None and text != "-":
        return text
    try:
        read = sys.stdin.read() if file is None else file.read_text(errors="replace")
    except OSError as error:
        raise Failure(f"{file} cannot be read: {error.strerror}", status=2) from error
    if not read.strip():
        raise Failure(f"there is nothing {'on standard input' if file is None else f'in {file}'}", status=2)
    return read


def given(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}


def told(task: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.print_json(task)
        return
    print(task["id"])
    option = client.instance_option(settings())
    reason = f": {output.plain(task['reason'])}" if task["reason"] else ""
    output.done(f"{output.plain(task['title'])} is {painted_state(task['state'])}{reason}")
    output.say(f"  {SANDLOT} task logs{option} -f {task['id']}")
