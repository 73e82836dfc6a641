"""Tasks while everything dies: the whole server by SIGKILL at random moments, and sandboxes; each task ends with one branch and one pull request."""

from __future__ import annotations

import contextlib
import os
import random
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server
from tests.github.emulator import running
from tests.platform.world import Served, by_url
from tests.tasks.world import Tasks

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]
TASKS = int(os.environ.get("CHAOS_TASKS", "20"))
KILLS = int(os.environ.get("CHAOS_KILLS", "100"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
OVER = {"review", "done", "failed", "cancelled", "needs_you"}


class Chaos:
    """One server that is killed and started again, and what it was asked for."""

    def __init__(self, server: Server) -> None:
        self.server, self.random = server, random.Random(SEED)
        self.server_kills = self.sandbox_kills = 0

    def ask(self, method: str, path: str, **options: Any) -> Any:
        """However often the server has to be started for an answer."""
        for _ in range(60):
            with contextlib.suppress(httpx.TransportError), self.server.http() as http:
                answer = http.request(method, path, **options)
                assert answer.status_code < 500, answer.text
                return answer.json() if answer.content else None
            self.server.up()
        raise AssertionError("the server does not come back")

    def tasks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("GET", "/tasks?limit=500")["tasks"]
        return found

    def begin(self, number: int) -> str:
        body = {
            "repository": "app",
            "prompt": f"Write file {number}",
            "command": f"sleep {self.random.uniform(0.1, 3):.1f}; echo {number} >file-{number}",
            "checks": [f"grep -q {number} file-{number}"],
            "network": {"internet": False},
        }
        made = self.ask("POST", "/tasks", json=body, headers={"Idempotency-Key": f"task-{number}"})
        return str(made["id"])

    def harm(self) -> None:
        """End the server, or one of the sandboxes behind its back."""
        working = [task["sandbox_id"] for task in self.tasks() if task["state"] == "working" and task["sandbox_id"]]
        if working and self.random.random() < 0.2:
            running = self.server.running()
            if running:
                self.ask("DELETE", f"/sandboxes/{self.random.choice(running)}")
                self.sandbox_kills += 1
            return
        self.server.kill_9()
        self.server_kills += 1
        self.server.up()


def test_twenty_tasks_end_with_one_pull_request_each_whatever_is_killed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with in_pristine(tmp_path_factory, "container", prepare_templates="none") as server:
        chaos = Chaos(server)
        chaos.ask("POST", "/repositories", json={"name": "app"})
        ids = [chaos.begin(number) for number in range(TASKS)]
        assert ids == [chaos.begin(number) for number in range(TASKS)]  # asked for again, made once
        deadline = time.monotonic() + 3600
        while any(task["state"] not in OVER for task in chaos.tasks()):
            assert time.monotonic() < deadline, [(task["id"], task["state"], task["reason"]) for task in chaos.tasks()]
            time.sleep(chaos.random.uniform(0.0, 3.0))
            if chaos.server_kills + chaos.sandbox_kills < KILLS:
                chaos.harm()
        print(f"{chaos.server_kills} kills of the server, {chaos.sandbox_kills} of sandboxes")
        _check(chaos, set(ids))


def _check(chaos: Chaos, ids: set[str]) -> None:
    tasks = chaos.tasks()
    assert {task["id"] for task in tasks} == ids
    wrong = [(task["id"], task["state"], task["reason"]) for task in tasks if task["state"] != "review"]
    # A sandbox that is taken away again and again ends its task: with a reason, and only then.
    assert all(reason and "lost" in reason for _, _, reason in wrong) and len(wrong) <= chaos.sandbox_kills, wrong
    good = {task["id"] for task in tasks if task["state"] == "review"}
    pulls = chaos.ask("GET", "/repositories/app/pulls")["pulls"]
    assert sorted(pull["head"] for pull in pulls) == sorted(f"task-{id}" for id in good)
    branches = {branch["name"] for branch in chaos.ask("GET", "/repositories/app/branches")["branches"]}
    assert branches == {"main", *(f"task-{id}" for id in good)}
    for pull in pulls:  # one change, of its own task, none of it twice
        files = chaos.ask("GET", f"/repositories/app/pulls/{pull['number']}/diff")["files"]
        assert len(files) == 1 and files[0]["added"] == 1, (pull["head"], files)
    for id in ids:
        with contextlib.suppress(AssertionError):
            chaos.ask("POST", f"/tasks/{id}/done")
        chaos.ask("DELETE", f"/tasks/{id}")
    deadline = time.monotonic() + 120
    while left := chaos.server.running():
        assert time.monotonic() < deadline, f"orphans: {left}"
        time.sleep(1)


async def test_tasks_at_a_forge_that_fails_end_with_one_pull_request_each(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """Errors of the server, limits of its rate, connections that break, answers that are none: at random, on every route."""
    chance = random.Random(SEED)
    with (
        in_pristine(tmp_path_factory, "container", prepare_templates="none") as engine,
        running(tmp_path / "github") as github,
    ):
        there, token = github.repository("ada/app", robot="write"), github.token("robot")
        configuration = by_url(f"http://127.0.0.1:{engine.port}", engine.key)
        async with Served(tmp_path, configuration) as served, served.http() as http:
            new = {"name": "app", "url": f"{github.url}/ada/app", "forge": "github", "token": token}
            assert (await http.post("/repositories", json=new)).status_code == 201
            admin = Tasks(http, served, "", tmp_path)
            ids = []
            for number in range(TASKS):
                for _ in range(chance.randrange(4)):
                    route = chance.choice(
                        [("POST", "/repos/ada/app/pulls"), ("GET", "/repos/ada/app/pulls"), ("GET", "/repos/ada/app")]
                    )
                    github.fault(
                        *route,
                        chance.choice(
                            ["500", "502", "secondary", "primary", "reset", "garbage", "reset-after", "500-after"]
                        ),
                    )
                ids.append(await admin.create(f"File {number}", command=f"echo {number} >file-{number}"))
            for id in ids:
                await admin.until(id, "review", seconds=600)
            assert sorted(pull.head for pull in there.pulls()) == sorted(f"task-{id}" for id in ids)
            for id in ids:
                await http.post(f"/tasks/{id}/done")
                assert (await http.delete(f"/tasks/{id}")).status_code == 204
            assert engine.running() == []
