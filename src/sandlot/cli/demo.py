"""The demo: a sample repository, a task by an agent without a model, and the pull request that comes of it."""

from __future__ import annotations

import base64
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandlot.cli import client, diffs, following, output, server
from sandlot.cli.client import Refused
from sandlot.cli.console import login_link
from sandlot.cli.options import Json, of_instance, settings
from sandlot.cli.output import Failure
from sandlot.platform.agents.demo import (
    DEMO_AGENT,
    DEMO_CHECK,
    DEMO_FOLLOW_UP,
    DEMO_PROMPT,
    DEMO_TEMPLATE,
    demo_repository,
)
from sandlot.program import SANDLOT

if TYPE_CHECKING:
    from sandlot.settings import Settings

LABEL = "demo"
LIMIT_S = 300


@of_instance
def demo(
    *,
    repository: Annotated[str, typer.Option(help="What the sample repository is called.")] = "sandlot-demo",
    merge: Annotated[bool, typer.Option("--merge", help="Merge the pull request at the end.")] = False,
    as_json: Json = False,
) -> None:
    """See a task become a pull request: no key, no account, no internet. Starts the server if none runs."""
    began = time.monotonic()
    chosen = settings()
    server.ensure_up(chosen)
    _prepare(chosen, repository)
    task = _handed_over(chosen, repository)
    if as_json:
        task = following.show_quietly(chosen, task)
    else:
        output.say(f"Task {task['id']}: {task['title']}")
        task = following.show(chosen, task)
    if task["state"] != "review" or not task["pull_request"]:
        raise following.end(chosen, task)
    number = task["pull_request"]["number"]
    changes = client.get(chosen, f"/repositories/{repository}/pulls/{number}/diff")
    if merge:
        client.send(chosen, "POST", f"/repositories/{repository}/pulls/{number}/merge", {})
    if as_json:
        record = client.get(chosen, f"/repositories/{repository}/pulls/{number}")
        output.print_json({"task": task, "pull_request": record, "diff": changes, "merged": merge})
        return
    print()
    diffs.print_diff(changes)
    _say_end(chosen, task, merge, time.monotonic() - began)


def _handed_over(chosen: Settings, repository: str) -> dict[str, Any]:
    body = {
        "repository": repository,
        "prompt": DEMO_PROMPT,
        "agent": DEMO_AGENT,
        "template": DEMO_TEMPLATE,
        "checks": [DEMO_CHECK],
        "labels": [LABEL],
        "network": {"internet": False},
        "limits": {"seconds": LIMIT_S},
    }
    made: dict[str, Any] = client.send(chosen, "POST", "/tasks", body)
    return made


def _say_end(chosen: Settings, task: dict[str, Any], merged: bool, seconds: float) -> None:
    option, pull, repository = client.instance_option(chosen), task["pull_request"], task["repository"]
    output.say()
    output.done(f"From a sentence to a pull request in {seconds:.0f} s: {client.absolute(chosen, pull['url'])}")
    steps = [
        (f"{SANDLOT} task show{option} {task['id']}", "what was asked for and done"),
        (f'{SANDLOT} task message{option} {task["id"]} "{DEMO_FOLLOW_UP}" --follow', "have it changed"),
    ]
    if merged:
        output.done("It is merged.")
    else:
        steps.insert(0, (f"{SANDLOT} pr merge{option} {repository} {pull['number']}", "merge it"))
    width = max(len(command) for command, _ in steps)
    for command, meaning in steps:
        output.say(f"  {command.ljust(width)}  {meaning}")
    output.say(f"See it in the console (this link logs one browser in, once): {login_link(chosen)['url']}")


# -- the repository -----------------------------------------------------------------------------------------------------


def _prepare(chosen: Settings, name: str) -> None:
    """The sample repository as it is at the beginning, whatever an earlier demo left of it."""
    try:
        record = client.get(chosen, f"/repositories/{name}")
    except Refused as error:
        if error.code != 404:
            raise
        record = client.send(chosen, "POST", "/repositories", {"name": name, "empty": True})
    if record["forge"] != "local":
        raise Failure(f"repository {name} is not hosted here; choose another name: {SANDLOT} demo --repository NAME")
    with tempfile.TemporaryDirectory(prefix="sandlot-demo-") as directory:
        _begin_again(chosen, record, Path(directory) / name)
    for pull in client.get(chosen, f"/repositories/{name}/pulls?state=open")["pulls"]:
        if LABEL in pull["labels"] or pull["head"].startswith("task-"):
            client.send(chosen, "POST", f"/repositories/{name}/pulls/{pull['number']}/close", {})
    output.done(f"Repository {name}: a small program with tests, hosted here")


def _begin_again(chosen: Settings, record: dict[str, Any], clone: Path) -> None:
    git, files = _Git(chosen, clone), demo_repository()
    clone.mkdir()
    git("init", "-q", "-b", record["default_branch"])
    address = f"{client.running(chosen).url}/git/{record['name']}.git"
    if git("ls-remote", address, f"refs/heads/{record['default_branch']}"):
        git("pull", "-q", address, record["default_branch"])
        if not all((clone / path).exists() for path in files):
            raise Failure(
                f"repository {record['name']} holds other work; choose another name: {SANDLOT} demo --repository NAME"
            )
        git("rm", "-q", "-r", "--ignore-unmatch", ".")
    for path, content in files.items():
        (clone / path).parent.mkdir(parents=True, exist_ok=True)
        (clone / path).write_bytes(content)
    git("add", "--all")
    if git("status", "--porcelain"):
        git("commit", "-q", "-m", "chore: begin the demo")
        git("push", "-q", address, f"HEAD:refs/heads/{record['default_branch']}")


class _Git:
    """git in one directory, with the server's key in its environment: not in its arguments, which others can read."""

    def __init__(self, chosen: Settings, directory: Path) -> None:
        facts, key = client.running(chosen), client.api_key(chosen)
        token = base64.b64encode(f"x:{key}".encode()).decode()
        values = {"http.extraHeader": f"Authorization: Basic {token}"} | (
            {"http.sslCAInfo": facts.ca} if facts.ca else {}
        )
        who = {f"GIT_{part}_{field}": text for part in ("AUTHOR", "COMMITTER") for field, text in _IDENTITY.items()}
        config = {"GIT_CONFIG_COUNT": str(len(values))}
        for number, (name, value) in enumerate(values.items()):
            config |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        quiet = {
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": str(directory),
        }
        self._environment = {**kept, **quiet, **who, **config}
        self._directory = directory

    def __call__(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise Failure(
                f"git {words[0]} failed while the sample repository was prepared: {done.stderr.strip()[-500:]}"
            )
        return done.stdout.strip()


_IDENTITY = {"NAME": "Sandlot", "EMAIL": "sandlot@localhost"}
