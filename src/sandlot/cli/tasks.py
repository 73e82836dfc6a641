"""The commands about tasks: hand over work, watch it, talk to its agent, and see what came of it."""

from __future__ import annotations

import functools
import urllib.parse
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from sandlot.cli import client, diffs, following, output, task_create, task_stream, task_tables
from sandlot.cli.options import Json, of_instance, settings
from sandlot.cli.output import Failure
from sandlot.cli.task_asking import Follow, PromptFile, explained, followed, given, text, told
from sandlot.cli.timeline import TimelineView
from sandlot.program import SANDLOT

app = typer.Typer(
    no_args_is_help=True,
    help="Work on repositories that agents do in sandboxes. It ends in pull requests.",
)

Id = Annotated[str, typer.Argument(metavar="ID", help=f"The task, as in `{SANDLOT} task list`.")]
Full = Annotated[bool, typer.Option("--full", help="Fold nothing.")]


app.command()(task_create.create)


@app.command("list")
@of_instance
def list_(
    *,
    state: Annotated[
        list[str] | None,
        typer.Option(help="todo, queued, working, needs_you, review, done, failed, cancelled; may be repeated."),
    ] = None,
    repository: Annotated[str | None, typer.Option("--repository", "--repo", help="Of this repository.")] = None,
    label: Annotated[str | None, typer.Option(help="With this label.")] = None,
    search: Annotated[str | None, typer.Option(help="With these words in title or prompt.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
    as_json: Json = False,
) -> None:
    """List tasks, the newest first."""
    wanted = {"state": ",".join(state) if state else None, "repository": repository, "label": label, "q": search}
    rows = list(_pages(given(wanted), limit))
    if as_json:
        output.print_json(rows)
        return
    columns = ("id", "state", "title", "repository", "agent", "changes", "cost", "pull request", "age")
    output.print_table(columns, [task_tables.row(task) for task in rows], "No tasks.")


@app.command()
@of_instance
def show(*, id: Id, full: Full = False, as_json: Json = False) -> None:
    """Show one task: what was asked for, how far it is, what its checks said."""
    chosen = settings()
    with explained():
        task = client.get(chosen, task_stream.path(id))
        steps = client.get(chosen, f"{task_stream.path(id)}/steps")["steps"]
        attempts = client.get(chosen, f"{task_stream.path(id)}/attempts")["attempts"]
    if as_json:
        output.print_json({**task, "steps": steps, "attempts": attempts})
        return
    output.print_record(task_tables.record(task, functools.partial(client.absolute, chosen)))
    task_tables.print_checks(task["checks"], full)
    if steps:
        print(f"\n{output.paint('steps', 'bold')}  " + "  ".join(task_tables.step(step) for step in steps))
    for step in steps:
        if step["problem"]:
            print(f"  {step['name']}: {output.plain(step['problem'])}")
    if len(attempts) > 1:
        print()
        columns = ("attempt", "agent", "state", "changes", "cost", "seconds", "")
        output.print_table(columns, [task_tables.attempt(each) for each in attempts], "")


@app.command()
@of_instance
def logs(
    *,
    id: Id,
    follow: Follow = False,
    full: Full = False,
    raw: Annotated[bool, typer.Option("--raw", help="What the agent wrote, as it wrote it.")] = False,
    as_json: Json = False,
) -> None:
    """Print the timeline of a task. With --json, one entry a line; when it is followed, the task comes last."""
    chosen = settings()
    with explained():
        task = client.get(chosen, task_stream.path(id))
    if raw:
        with client.opened(chosen, f"{task_stream.path(id)}/log", timeout_s=60) as answer:
            for piece in answer:
                print(output.plain(piece.decode("utf-8", "replace")), end="")
        return
    if follow:
        raise followed(chosen, task, as_json=as_json, full=full)
    view = TimelineView(task, full=full, width=following.columns())
    for entry in task_stream.entries(chosen, id):
        if as_json:
            output.print_json_line(entry)
        else:
            for line in view.lines(entry):
                print(line)
    for line in () if as_json else view.rest():
        print(line)


@app.command()
@of_instance
def message(
    *,
    id: Id,
    words: Annotated[
        str | None, typer.Argument(help="What to tell the agent; `-` reads it from standard input.")
    ] = None,
    file: PromptFile = None,
    now: Annotated[
        bool, typer.Option("--now", help="Interrupt the agent; otherwise it finishes its turn first.")
    ] = False,
    follow: Follow = False,
    as_json: Json = False,
) -> None:
    """Say something to a task's agent. A task that rests goes on, in its own sandbox."""
    said = text(words, file)
    if said is None:
        raise Failure(f'say what to tell the agent: {SANDLOT} task message {id} "..."', status=2)
    body = {"text": said, "mode": "interrupt" if now else "queue"}
    _act(id, "messages", body, follow=follow, as_json=as_json)


@app.command()
@of_instance
def start(*, id: Id, follow: Follow = False, as_json: Json = False) -> None:
    """Queue a task that was kept for later, or paused."""
    _act(id, "start", follow=follow, as_json=as_json)


@app.command()
@of_instance
def stop(*, id: Id, as_json: Json = False) -> None:
    """End a task's agent, and cancel the task."""
    chosen = settings()
    with explained():
        task = client.send(chosen, "POST", f"{task_stream.path(id)}/stop")
    if as_json or task["state"] != "working":
        told(task, as_json)
    else:
        output.done(f"{output.plain(task['title'])} is told to stop; its agent ends soon")


@app.command()
@of_instance
def pause(*, id: Id, as_json: Json = False) -> None:
    """Interrupt a task's agent until you start the task again."""
    _act(id, "pause", as_json=as_json)


@app.command()
@of_instance
def retry(*, id: Id, follow: Follow = False, as_json: Json = False) -> None:
    """Take up a task again where it stopped."""
    _act(id, "retry", follow=follow, as_json=as_json)


@app.command()
@of_instance
def done(*, id: Id, as_json: Json = False) -> None:
    """Say that nothing is left to do."""
    _act(id, "done", as_json=as_json)


@app.command()
@of_instance
def diff(
    *,
    id: Id,
    stat: Annotated[bool, typer.Option("--stat", help="Only files and counts.")] = False,
    as_json: Json = False,
) -> None:
    """Print what a task changes: git applies it."""
    with explained():
        record = client.get(settings(), f"{task_stream.path(id)}/diff")
    if as_json:
        output.print_json(record)
    elif not record["files"]:
        output.say("No changes.")
    elif stat:
        diffs.print_stat(record)
    else:
        diffs.print_diff(record)


@app.command()
@of_instance
def delete(
    *,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Tasks that have ended or have not begun.")],
    force: Annotated[bool, typer.Option("--stop", help="Stop those that are not over first.")] = False,
    as_json: Json = False,
) -> None:
    """Forget tasks, with their sandboxes, timelines and artifacts. Pull requests stay."""
    chosen = settings()
    for id in ids:
        with explained():
            if force:
                following.stopped(chosen, id)
            client.send(chosen, "DELETE", task_stream.path(id))
        if not as_json:
            output.done(f"{id} is deleted")
    if as_json:
        output.print_json([{"id": id, "deleted": True} for id in ids])


# -- asking -------------------------------------------------------------------------------------------------------------


def _act(id: str, route: str, body: Any = None, *, follow: bool = False, as_json: bool = False) -> None:
    chosen = settings()
    with explained():
        after = following.last_entry(chosen, id) if follow else 0
        task = client.send(chosen, "POST", f"{task_stream.path(id)}/{route}", body)
    if follow:
        raise followed(chosen, task, after=after, as_json=as_json)
    told(task, as_json)


def _pages(wanted: dict[str, Any], limit: int) -> Iterator[dict[str, Any]]:
    chosen, after = settings(), None
    while limit > 0:
        query = urllib.parse.urlencode(given({**wanted, "limit": min(limit, 500), "after": after}))
        page = client.get(chosen, f"/tasks?{query}")
        yield from page["tasks"]
        limit, after = limit - len(page["tasks"]), page["next"]
        if after is None:
            return
