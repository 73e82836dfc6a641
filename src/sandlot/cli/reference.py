"""Writes the settings page of the documentation from the settings themselves."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from sandlot.settings import Settings

HEAD = """# Settings

Read from the environment. `--data-dir`, `--port` and `--domain` are command-line options too, and come first.

| variable | default | what it is |
| --- | --- | --- |
"""


def settings_page() -> str:
    rows = (_row(name, field) for name, field in Settings.model_fields.items())
    return HEAD + "".join(rows)


def _row(name: str, field: FieldInfo) -> str:
    choices = typing.get_args(field.annotation) if typing.get_origin(field.annotation) is typing.Literal else ()
    told = f" One of {', '.join(f'`{choice}`' for choice in choices)}." if choices else ""
    return f"| `SANDLOT_{name.upper()}` | {_default(field.default)} | {field.description}{told} |\n"


def _default(value: Any) -> str:
    if value is None or value == ():
        return "unset"
    return f"`{value}`" if isinstance(value, str | int | Path) else f"`{value!s}`"


if __name__ == "__main__":
    print(settings_page(), end="")
