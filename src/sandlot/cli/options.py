"""Options that every command has: which instance is meant, by its data directory and its port."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sandlot.cli.output import Failure

if TYPE_CHECKING:
    from sandlot.settings import Settings

Command = TypeVar("Command", bound=Callable[..., Any])

DataDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Where the instance keeps everything. Also SANDLOT_DATA_DIR. Default: /var/lib/sandlot.",
        show_default=False,
        rich_help_panel="Instance",
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Port the instance listens on. Also SANDLOT_PORT. Default: 3900.",
        min=0,
        max=65535,
        show_default=False,
        rich_help_panel="Instance",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def remember(data_dir: Path | None, port: int | None) -> None:
    """Options become the environment: `Settings` reads it, and so does the server that `up` starts."""
    if data_dir is not None:
        os.environ["SANDLOT_DATA_DIR"] = str(data_dir.expanduser().absolute())
    if port is not None:
        os.environ["SANDLOT_PORT"] = str(port)


def of_instance(command: Command) -> Command:
    """Give a command `--data-dir` and `--port`, so that they may stand after its name as well as before."""

    @functools.wraps(command)
    def wrapper(*args: Any, data_dir: Path | None = None, port: int | None = None, **kwargs: Any) -> Any:
        remember(data_dir, port)
        return command(*args, **kwargs)

    keyword = inspect.Parameter.KEYWORD_ONLY
    hints = inspect.signature(command, eval_str=True)
    own = [parameter.replace(kind=keyword) for parameter in hints.parameters.values()]
    extra = [
        inspect.Parameter("data_dir", keyword, default=None, annotation=DataDir),
        inspect.Parameter("port", keyword, default=None, annotation=Port),
    ]
    wrapper.__signature__ = hints.replace(parameters=[*own, *extra])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in (*own, *extra)}
    return wrapper  # type: ignore[return-value]


def settings() -> Settings:
    from pydantic import ValidationError

    from sandlot.settings import Settings

    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "SANDLOT_" + str(first["loc"][0]).upper()
        raise Failure(f"{name} is set to {first['input']!r}, which is not right: {first['msg']}") from error
