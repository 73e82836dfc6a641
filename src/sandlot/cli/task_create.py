"""The command that hands over work."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from sandlot.cli import client
from sandlot.cli.options import Json, of_instance, settings
from sandlot.cli.output import Failure
from sandlot.cli.task_asking import Follow, PromptFile, explained, followed, given, text, told
from sandlot.program import SANDLOT

_WORK, _LIMITS, _FORM = "Work", "Limits", "Form"
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


@of_instance
def create(
    *,
    repository: Annotated[
        str | None,
        typer.Argument(metavar="REPOSITORY", help=f"As in `{SANDLOT} repo list`. Not needed with --from-issue."),
    ] = None,
    prompt: Annotated[str | None, typer.Argument(help="What is to be done; `-` reads it from standard input.")] = None,
    file: PromptFile = None,
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
    words = _prompt(repository, text(prompt, file), command, from_issue)
    limits = {"seconds": _seconds(time), "turns": turns, "cost_usd": cost, "attempts": tries}
    network = None if internet and not allow else {"internet": internet, "allow": allow or []}
    body = {
        "repository": repository,
        "prompt": words,
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
        "limits": given(limits) or None,
        "network": network,
        "secrets": secret,
        "start": None if start else False,
    }
    chosen = settings()
    headers = {"Idempotency-Key": idempotency_key} if idempotency_key else None
    with explained(repository=repository):
        task = client.send(chosen, "POST", "/tasks", given(body), headers)
    if follow:
        raise followed(chosen, task, as_json=as_json)
    told(task, as_json)


def _prompt(repository: str | None, prompt: str | None, command: str | None, issue: str | None) -> str | None:
    if issue is None and repository is None:
        raise Failure(f'name a repository and say what to do: {SANDLOT} task create app "Add a test"', status=2)
    if prompt is None and command is not None:
        return f"Run {command}"
    if prompt is None and issue is None:
        raise Failure("say what is to be done, or name an issue: --from-issue URL", status=2)
    return prompt


def _seconds(text: str | None) -> int | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,6})([smh]?)", text.strip())
    if not found:
        raise Failure("--time is a number with a unit: 90s, 30m, 2h", status=2)
    return int(found[1]) * _UNITS[found[2]]
