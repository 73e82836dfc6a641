"""The commands about tasks: hand over work, watch it, talk to its agent, and see what came of it."""

from __future__ import annotations

import functools
import re
import sys
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from sandlot.cli import client, diffs, following, output, task_stream, task_tables
from sandlot.cli.client import Refused
from sandlot.cli.options import Json, of_instance, settings
from sandlot.cli.output import Failure
from sandlot.cli.timeline import TimelineView, painted_state
from sandlot.program import SANDLOT

app = typer.Typer(
    no_args_is_help=True,
    help="Work on repositories that agents do in sandboxes. It ends in pull requests.",
)

Id = Annotated[str, typer.Argument(metavar="ID", help=f"The task, as in `{SANDLOT} task list`.")]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow",
        "-f",
        help="Show what happens until it rests. Exit code: 0 in review or done, 1 failed, 2 needs you, 3 cancelled.",
    ),
]
Full = Annotated[bool, typer.Option("--full", help="Fold nothing.")]
_WORK, _LIMITS, _FORM = "Work", "Limits", "Form"
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


@app.command()
@of_instance
def create(
    *,
    repository: Annotated[
        str | None,
        typer.Argument(metavar="REPOSITORY", help=f"As in `{SANDLOT} repo list`. Not needed with --from-issue."),
    ] = None,
    prompt: Annotated[str | None, typer.Argument(help="What is to be done; `-` reads it from standard input.")] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            help="Who does it: claude, codex, gemini, opencode, command, scripted, ...", rich_help_panel=_WORK
        ),
    ] = None,
    command: Annotated[
        str | None, typer.Option(help="What the agent `command` runs in the checkout.", rich_help_panel=_WORK)
    ] = None,
    check: Annotated[
        list[str] | None,
        typer.Option(help="Done when this command ends with 0; may be repeated.", rich_help_panel=_WORK),
    ] = None,
    from_issue: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Take title and text from this issue, and link it.", rich_help_panel=_WORK),
    ] = None,
    base: Annotated[str | None, typer.Option(help="The branch to begin at.", rich_help_panel=_WORK)] = None,
    model: Annotated[str | None, typer.Option(help="Which model the agent uses.", rich_help_panel=_WORK)] = None,
    attempts: Annotated[
        int | None,
        typer.Option(
            min=1, max=8, help="How many try it side by side; the best becomes the pull request.", rich_help_panel=_WORK
        ),
    ] = None,
    agents: Annotated[
        str | None, typer.Option(metavar="A,B", help="A different agent for each attempt.", rich_help_panel=_WORK)
    ] = None,
    blocked_by: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Begin when this task is done; may be repeated.", rich_help_panel=_WORK),
    ] = None,
    start: Annotated[bool, typer.Option(help="Begin at once, or keep it for later.", rich_help_panel=_WORK)] = True,
    title: Annotated[
        str | None, typer.Option(help="Default: the beginning of the prompt.", rich_help_panel=_FORM)
    ] = None,
    label: Annotated[list[str] | None, typer.Option(help="May be repeated.", rich_help_panel=_FORM)] = None,
    reviewer: Annotated[
        list[str] | None, typer.Option(help="Who is asked to review; may be repeated.", rich_help_panel=_FORM)
    ] = None,
    artifact: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="A file to keep at the end; may be repeated.", rich_help_panel=_FORM),
    ] = None,
    parent: Annotated[
        str | None, typer.Option(metavar="ID", help="The task that this one is a part of.", rich_help_panel=_FORM)
    ] = None,
    draft_on_failure: Annotated[
        bool, typer.Option("--draft-on-failure", help="Open a draft if the checks do not pass.", rich_help_panel=_FORM)
    ] = False,
    template: Annotated[str | None, typer.Option(help="What the sandbox starts from.", rich_help_panel=_LIMITS)] = None,
    provider: Annotated[str | None, typer.Option(help="Where the sandbox runs.", rich_help_panel=_LIMITS)] = None,
    time: Annotated[
        str | None, typer.Option(metavar="30m", help="Most time for agent and checks.", rich_help_panel=_LIMITS)
    ] = None,
    turns: Annotated[int | None, typer.Option(min=1, help="Most turns of the agent.", rich_help_panel=_LIMITS)] = None,
    cost: Annotated[
        float | None, typer.Option(metavar="USD", help="Most money for models.", rich_help_panel=_LIMITS)
    ] = None,
    tries: Annotated[
        int | None,
        typer.Option(min=1, max=20, help="How often the agent may try until the checks pass.", rich_help_panel=_LIMITS),
    ] = None,
    internet: Annotated[
        bool, typer.Option(help="Whether the sandbox reaches the internet.", rich_help_panel=_LIMITS)
    ] = True,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST", help="Reachable although the internet is off; may be repeated.", rich_help_panel=_LIMITS
        ),
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A secret of sandlot.toml that it gets; may be repeated.", rich_help_panel=_LIMITS
        ),
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="The same key makes the task once, however often this is run.")
    ] = None,
    follow: Follow = False,
    as_json: Json = False,
) -> None:
    """Hand over work, as in ./sandlot task create app "Add a /health route" --check "pytest -q"."""
    text = _prompt(repository, prompt, command, from_issue)
    limits = {"seconds": _seconds(time), "turns": turns, "cost_usd": cost, "attempts": tries}
    network = None if internet and not allow else {"internet": internet, "allow": allow or []}
    body = {
        "repository": repository,
        "prompt": text,
        "agent": agent,
        "command": command,
        "checks": check,
        "issue": from_issue,
        "base": base,
        "model": model,
        "attempts": attempts,
        "agents": [name.strip() for name in agents.split(",") if name.strip()] if agents else None,
        "blocked_by": blocked_by,
        "title": title,
        "labels": label,
        "reviewers": reviewer,
        "artifacts": artifact,
        "parent": parent,
        "draft_on_failure": draft_on_failure or None,
        "template": template,
        "provider": provider,
        "limits": _given(limits) or None,
        "network": network,
        "secrets": secret,
        "start": None if start else False,
    }
    chosen = settings()
    headers = {"Idempotency-Key": idempotency_key} if idempotency_key else None
    with _explained(repository=repository):
        task = client.send(chosen, "POST", "/tasks", _given(body), headers)
    if follow:
        raise _followed(chosen, task, as_json=as_json)
    _told(task, as_json)


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
    rows = list(_pages(_given(wanted), limit))
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
    with _explained():
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
    with _explained():
        task = client.get(chosen, task_stream.path(id))
    if raw:
        with client.opened(chosen, f"{task_stream.path(id)}/log", timeout_s=60) as answer:
            for piece in answer:
                print(output.plain(piece.decode("utf-8", "replace")), end="")
        return
    if follow:
        raise _followed(chosen, task, as_json=as_json, full=full)
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
    text: Annotated[str, typer.Argument(help="What to tell the agent; `-` reads it from standard input.")],
    now: Annotated[
        bool, typer.Option("--now", help="Interrupt the agent; otherwise it finishes its turn first.")
    ] = False,
    follow: Follow = False,
    as_json: Json = False,
) -> None:
    """Say something to a task's agent. A task that rests goes on, in its own sandbox."""
    body = {"text": _text(text), "mode": "interrupt" if now else "queue"}
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
    _act(id, "stop", as_json=as_json)


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
    with _explained():
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
        with _explained():
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
    with _explained():
        after = following.last_entry(chosen, id) if follow else 0
        task = client.send(chosen, "POST", f"{task_stream.path(id)}/{route}", body)
    if follow:
        raise _followed(chosen, task, after=after, as_json=as_json)
    _told(task, as_json)


def _followed(chosen: Any, task: dict[str, Any], *, after: int = 0, as_json: bool, full: bool = False) -> typer.Exit:
    if as_json:
        return typer.Exit(following.exit_code(following.show_json(chosen, task, after=after)))
    if after == 0:
        output.say(f"Task {task['id']} in {output.plain(task['repository'])}: {output.plain(task['title'])}")
    return following.end(chosen, following.show(chosen, task, after=after, full=full))


def _pages(wanted: dict[str, Any], limit: int) -> Iterator[dict[str, Any]]:
    chosen, after = settings(), None
    while limit > 0:
        query = urllib.parse.urlencode(_given({**wanted, "limit": min(limit, 500), "after": after}))
        page = client.get(chosen, f"/tasks?{query}")
        yield from page["tasks"]
        limit, after = limit - len(page["tasks"]), page["next"]
        if after is None:
            return


@contextmanager
def _explained(repository: str | None = None) -> Iterator[None]:
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


def _prompt(repository: str | None, prompt: str | None, command: str | None, issue: str | None) -> str | None:
    if issue is None and repository is None:
        raise Failure(f'name a repository and say what to do: {SANDLOT} task create app "Add a test"', status=2)
    if prompt is None and command is not None:
        return f"Run {command}"
    if prompt is None and issue is None:
        raise Failure("say what is to be done, or name an issue: --from-issue URL", status=2)
    return _text(prompt) if prompt is not None else None


def _text(text: str) -> str:
    if text != "-":
        return text
    read = sys.stdin.read()
    if not read.strip():
        raise Failure("there was nothing on standard input", status=2)
    return read


def _seconds(text: str | None) -> int | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,6})([smh]?)", text.strip())
    if not found:
        raise Failure("--time is a number with a unit: 90s, 30m, 2h", status=2)
    return int(found[1]) * _UNITS[found[2]]


def _given(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}


# -- showing ------------------------------------------------------------------------------------------------------------


def _told(task: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.print_json(task)
        return
    print(task["id"])
    option = client.instance_option(settings())
    reason = f": {output.plain(task['reason'])}" if task["reason"] else ""
    output.done(f"{output.plain(task['title'])} is {painted_state(task['state'])}{reason}")
    output.say(f"  {SANDLOT} task logs{option} -f {task['id']}")
