"""What the CLI prints: colour and live progress on a terminal, plain lines when piped, JSON when asked."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any


class Failure(Exception):
    """A command cannot be done; the message says why and what to do next."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def is_fancy(stream: Any = None) -> bool:
    stream = stream or sys.stdout
    return bool(stream.isatty()) and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")


def paint(text: str, style: str, stream: Any = None) -> str:
    codes = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "magenta": "35", "cyan": "36"}
    return f"\x1b[{codes[style]}m{text}\x1b[0m" if is_fancy(stream) else text


def say(text: str = "") -> None:
    """Progress and remarks go to stderr, so that stdout holds results alone."""
    print(text, file=sys.stderr, flush=True)


def done(text: str) -> None:
    say(f"{paint('✓', 'green', sys.stderr)} {text}")


def warn(text: str) -> None:
    say(f"{paint('!', 'yellow', sys.stderr)} {text}")


def error(text: str) -> None:
    say(f"{paint('error:', 'red', sys.stderr)} {text}")


@contextlib.contextmanager
def step(text: str) -> Iterator[Callable[[str], None]]:
    """Show that something takes time; yields a function that tells what is being done now."""
    if not is_fancy(sys.stderr):
        say(f"{text} ...")
        yield lambda _: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(text) as status:

        def tell(detail: str) -> None:
            from rich.markup import escape

            room = max(10, console.width - len(text) - 8)
            status.update(f"{text} [dim]{escape(detail[:room])}[/dim]")

        yield tell


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, default=str, ensure_ascii=False))


def print_json_line(value: Any) -> None:
    print(json.dumps(value, default=str, ensure_ascii=False), flush=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], empty: str) -> None:
    """Aligned columns; the same words in both forms, so that scripts which read the plain one are not surprised."""
    if not rows:
        say(empty)
        return
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(name), *(len(row[i]) for row in cells)) for i, name in enumerate(columns)]
    print(paint(_line([name.upper() for name in columns], widths), "bold"))
    for row in cells:
        print(_line(row, widths))


def print_record(record: dict[str, Any]) -> None:
    width = max(len(name) for name in record)
    for name, value in record.items():
        print(f"{paint(name.ljust(width), 'bold')}  {_cell(value)}")


def age(since: datetime) -> str:
    """How long ago, in one or two units."""
    seconds = max(0, int((datetime.now(UTC) - since).total_seconds()))
    days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
    if days:
        return f"{days}d {hours}h"
    return f"{hours}h {minutes}m" if hours else f"{minutes}m {seconds % 60}s" if minutes else f"{seconds}s"


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


def plain(text: str) -> str:
    """Text of others, without what a terminal would obey."""
    return "".join(letter if letter.isprintable() or letter in "\t\n" else "\ufffd" for letter in text)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    text = str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else "�" for c in text)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
