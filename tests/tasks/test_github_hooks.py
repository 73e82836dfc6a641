"""From a label at GitHub to a merged pull request: real webhooks, a real sandbox, real git, the emulated GitHub; and the commands about it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.e2e.server import Server
from tests.github.emulator import running
from tests.github.hooks import SECRET
from tests.github.state import EmulatedPull, moment
from tests.github.test_webhooks import HookWorld, job
from tests.platform.world import Served, load_text, until

CONFIGURATION = """
[providers.elsewhere]
kind = "url"
api_url = "{url}"
sandbox_url = "{url}"
domain = "{domain}"
key_env = "KEY"
[github]
webhook_secret_env = "HOOK"
[[triggers]]
name = "labelled"
when = "issue-labelled"
command = "date +%N >>notes.txt"
template = "base"
checks = ["test -s notes.txt"]
"""


async def test_a_label_becomes_a_pull_request_red_goes_back_and_a_merge_ends_it(tmp_path: Path, engine: Server) -> None:
    url = f"http://127.0.0.1:{engine.port}"
    text = CONFIGURATION.format(url=url, domain=f"localhost:{engine.port}")
    configuration = load_text(text, {"KEY": engine.key, "HOOK": SECRET})
    with running(tmp_path / "github") as emulator:
        there = emulator.repository("ada/app", robot="write")
        world = HookWorld(emulator, there)
        async with Served(tmp_path, configuration) as served:
            world.served, world.url = served, f"{served.url}/webhooks/github"
            async with served.http() as http:
                body = {
                    "name": "app",
                    "url": f"{emulator.url}/ada/app",
                    "forge": "github",
                    "token": emulator.token("robot"),
                }
                assert (await http.post("/repositories", json=body)).status_code == 201
            task = await world.task()

            async def is_at(state: str, runs: int) -> bool:
                found = await world.find(task.id)
                assert found.status.value != "failed", found.reason
                return found.status.value == state and found.run == runs

            await until(lambda: is_at("review", 1), 110, what="the pull request")
            [pull] = there.pulls()
            assert pull.head == task.branch and isinstance(pull, EmulatedPull)
            first = there.tip(task.branch)

            await world.told("workflow_run", world.failed(task.branch, job()))
            await until(lambda: is_at("review", 2), 110, what="the second turn")
            assert there.tip(task.branch) != first and len(there.pulls()) == 1

            pull.state, pull.merged_at = "closed", moment()
            await world.told("pull_request", world.closed(pull))
            assert (await world.find(task.id)).status.value == "done"
        await world.http.aclose()


def test_the_commands_about_webhooks(engine: Server) -> None:
    assert engine.cli("webhook", "list", "--json").stdout.strip() == "[]"
    assert "No webhooks" in engine.cli("webhook", "list").stderr
    refused = engine.cli("webhook", "replay", "unknown", check=False)
    assert refused.returncode == 1 and "no delivery" in refused.stderr
    assert engine.cli("webhook", "list", "--status", "lost", check=False).returncode == 2


def test_a_repository_is_added_with_a_token_of_whoever_types_it(engine: Server, tmp_path: Path) -> None:
    with running(tmp_path / "github") as emulator:
        emulator.repository("ada/typed", robot="write")
        token = emulator.token("robot")
        words = ("repo", "add", f"{emulator.url}/ada/typed", "--forge", "github", "--token-env", "APP_TOKEN", "--json")
        argv, env = [sys.executable, "-m", "sandlot", *words], {**engine.cli_environment(), "APP_TOKEN": token}
        done = subprocess.run(argv, env=env, text=True, capture_output=True, timeout=100)
        try:
            assert done.returncode == 0, done.stderr
            added = json.loads(done.stdout)
            assert (added["name"], added["forge"], added["problem"]) == ("typed", "github", None)
            shown = engine.cli("repo", "show", "typed", "--json").stdout
            assert [each["name"] for each in json.loads(shown)["branches"]] == ["main"]
            assert token not in done.stdout + done.stderr + shown + engine.log
        finally:
            engine.cli("repo", "remove", "typed", check=False)
