"""Shows a task live until it rests, and turns how it ended into an exit code."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import typer

from sandlot.cli import client, output, task_stream
from sandlot.cli.timeline import TimelineView, painted_state
from sandlot.program import SANDLOT

if TYPE_CHECKING:
    from sandlot.settings import Settings

# What a script learns from following a task.
EXIT_CODES = {"review": 0, "done": 0, "failed": 1, "needs_you": 2, "cancelled": 3, "todo": 4}
INTERRUPTED = 130


def show(settings: Settings, task: dict[str, Any], *, after: int = 0, full: bool = False) -> dict[str, Any]:
    """Print the timeline as it grows; returns the task when it rests."""
    view = TimelineView(task, full=full, width=columns())
    with _live() as (write, tell):
        for told in _until_interrupted(settings, task["id"], after):
            if told.entry is not None:
                for line in view.lines(told.entry):
                    write(line)
            task = told.task or task
            tell(view.now or str(task["state"]))
        for line in view.rest():
            write(line)
    return task


def show_quietly(settings: Settings, task: dict[str, Any]) -> dict[str, Any]:
    """Wait; returns the task when it rests."""
    for told in _until_interrupted(settings, task["id"], 0):
        task = told.task or task
    return task


def show_json(settings: Settings, task: dict[str, Any], *, after: int = 0) -> dict[str, Any]:
    """One JSON object a line: entries as they come; the last line is the task."""
    for told in _until_interrupted(settings, task["id"], after):
        if told.entry is not None:
            output.print_json_line(told.entry)
        task = told.task or task
    output.print_json_line(task)
    return task


def end(settings: Settings, task: dict[str, Any]) -> typer.Exit:
    """Say how it ended and what can be done next; the exit code says the same to scripts."""
    option = client.instance_option(settings)
    output.say()
    output.say(headline(settings, task))
    for check in task["checks"]:
        if check["exit_code"] is not None:
            sign = output.paint("✓", "green") if check["exit_code"] == 0 else output.paint("✗", "red")
            output.say(f"  {sign} {output.plain(check['command'])}")
    steps = _next_steps(task, option)
    width = max((len(command) for command, _ in steps), default=0)
    for command, meaning in steps:
        output.say(f"  {command.ljust(width)}  {output.paint(meaning, 'dim')}")
    return typer.Exit(exit_code(task))


def columns() -> int:
    return shutil.get_terminal_size((100, 24)).columns if output.is_fancy() else 120


def last_entry(settings: Settings, id: str) -> int:
    """Where the timeline ends now, to follow what comes after it."""
    return max((int(entry["seq"]) for entry in task_stream.entries(settings, id)), default=0)


def stopped(settings: Settings, id: str) -> None:
    """End it, and wait until it has ended."""
    task = client.get(settings, task_stream.path(id))
    if task["state"] in ("done", "failed", "cancelled", "todo"):
        return
    client.send(settings, "POST", f"{task_stream.path(id)}/stop")
    for _ in task_stream.follow(settings, id):
        pass


def exit_code(task: dict[str, Any]) -> int:
    return EXIT_CODES.get(task["state"], 1)


def headline(settings: Settings, task: dict[str, Any]) -> str:
    verb = "" if task["state"] == "needs_you" else "is "
    parts = [f"Task {task['id']} {verb}{painted_state(task['state'])}"]
    took = _seconds(task)
    if took is not None:
        parts.append(f" after {took:.0f} s")
    if task["reason"]:
        parts.append(f": {output.plain(task['reason'])}")
    changes, facts = task["changes"], []
    if changes["files"]:
        facts.append(
            f"{changes['files']} file{'s' if changes['files'] != 1 else ''} +{changes['added']} -{changes['removed']}"
        )
    if task["cost_usd"] is not None:
        facts.append(f"${task['cost_usd']:.2f}")
    if task["pull_request"]:
        url = client.absolute(settings, task["pull_request"]["url"])
        facts.append(f"pull request {task['pull_request']['number']}: {output.plain(url)}")
    return "".join(parts) + "".join(f"\n  {fact}" for fact in facts)


def _next_steps(task: dict[str, Any], option: str) -> list[tuple[str, str]]:
    id, state, pull = task["id"], task["state"], task["pull_request"]
    steps = []
    if task["changes"]["files"]:
        steps.append((f"{SANDLOT} task diff{option} {id}", "what it changes"))
    if state == "review" and pull and pull["state"] == "open":
        steps.append((f"{SANDLOT} pr merge{option} {task['repository']} {pull['number']}", "merge it"))
    if state in ("review", "needs_you"):
        what = "answer, or say what to do differently" if state == "needs_you" else "have it changed"
        steps.append((f'{SANDLOT} task message{option} {id} "..."', what))
    if state in ("failed", "needs_you", "cancelled"):
        steps.append((f"{SANDLOT} task retry{option} {id}", "go on where it stopped"))
    if state == "todo":
        steps.append((f"{SANDLOT} task start{option} {id}", "begin"))
    return steps


def _seconds(task: dict[str, Any]) -> float | None:
    if not task["started_at"]:
        return None
    began = datetime.fromisoformat(task["queued_at"] or task["started_at"])
    ended = datetime.fromisoformat(task["ended_at"]) if task["ended_at"] else datetime.now(began.tzinfo)
    return max(0.0, (ended - began).total_seconds())


def _until_interrupted(settings: Settings, id: str, after: int) -> Iterator[task_stream.Told]:
    try:
        yield from task_stream.follow(settings, id, after)
    except KeyboardInterrupt:
        option = client.instance_option(settings)
        output.say(
            f"\nThe task goes on. Look again: {SANDLOT} task logs{option} -f {id}. End it: {SANDLOT} task stop{option} {id}"
        )
        raise typer.Exit(INTERRUPTED) from None


@contextlib.contextmanager
def _live() -> Iterator[tuple[Callable[[str], None], Callable[[str], None]]]:
    """A function that prints a line, and one that tells what is being done: below the lines, on a terminal only."""
    if not output.is_fancy():
        yield (lambda line: print(line, flush=True)), (lambda _: None)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.text import Text

    console = Console(highlight=False)
    with console.status("") as status:
        yield (
            lambda line: console.print(Text.from_ansi(line), soft_wrap=True),
            lambda doing: status.update(f"[dim]{escape(output.plain(doing)[: max(10, console.width - 6)])}[/dim]"),
        )
