"""The platform's process is ended with SIGKILL in the middle of tasks: each goes on, once, and leaves one branch and one pull request."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.e2e.server import Server, clean_environment, free_port
from tests.platform.world import ADMIN

from sandlot.platform.core.tasks import PROVING, REPORTING, STEPS

ROOT = Path(__file__).parent.parent.parent


pytestmark = pytest.mark.timeout(600)  # many starts of a server, on a machine that has other work


class Killable:
    """`tests.tasks.killable`, started as often as it dies."""

    def __init__(self, place: Path, engine: Server) -> None:
        self.place, self.engine, self.port = place, engine, free_port()
        self.kills, self.starts = place / "kills", 0
        self.kills.touch()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.starts += 1
        arguments = (self.place, self.port, f"http://127.0.0.1:{self.engine.port}", self.engine.key, self.kills)
        with (self.place / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.tasks.killable", *map(str, arguments)],
                cwd=ROOT,
                env={**clean_environment(), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
                stdout=log,
                stderr=log,
            )

    @property
    def is_dead(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self.port}", headers={"X-API-KEY": ADMIN}, timeout=30, trust_env=False
        )

    async def up(self, http: httpx.AsyncClient) -> bool:
        """Start it if it is dead; whether it answers."""
        if self._process is None or self.is_dead:
            self.start()
        with contextlib.suppress(httpx.HTTPError):
            return (await http.get("/platform/health")).status_code == 200
        return False

    async def get(self, http: httpx.AsyncClient, path: str) -> Any:
        """What it answers, however often it has to be started for that."""
        for _ in range(600):
            with contextlib.suppress(httpx.HTTPError):
                if await self.up(http):
                    answer = await http.get(path)
                    assert answer.status_code == 200, answer.text
                    return answer.json()
            await asyncio.sleep(0.1)
        raise AssertionError((self.place / "server.log").read_text()[-4000:])

    async def rests(self, http: httpx.AsyncClient, id: str, seconds: float = 400) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while True:
            task: dict[str, Any] = await self.get(http, f"/tasks/{id}")
            if task["state"] not in ("queued", "working"):
                return task
            assert time.monotonic() < deadline, (task, (self.place / "server.log").read_text()[-4000:])
            await asyncio.sleep(0.1)

    async def cleaned_up(self, http: httpx.AsyncClient, id: str) -> None:
        """Until the last step is done, too: that comes when the task rests already."""
        for _ in range(600):
            steps = (await self.get(http, f"/tasks/{id}/steps"))["steps"]
            if all(step["status"] == "done" for step in steps if step["name"] == "cleanup"):
                return
            await asyncio.sleep(0.1)
        raise AssertionError(steps)


@contextlib.contextmanager
def killable(place: Path, engine: Server) -> Iterator[Killable]:
    made = Killable(place, engine)
    try:
        yield made
    finally:
        made.kill()


async def test_a_task_survives_a_kill_at_every_boundary_of_its_steps(tmp_path: Path, engine: Server) -> None:
    before = set(engine.running())
    with killable(tmp_path, engine) as platform:
        async with platform.http() as http:
            await platform.get(http, "/tasks")
            assert (await http.post("/repositories", json={"name": "app"})).status_code == 201
            made = await http.post(
                "/tasks",
                json={
                    "repository": "app",
                    "prompt": "Say hello",
                    "command": "echo started >>/home/user/starts; sleep 1; cp /home/user/starts hello.txt",
                    "checks": ["echo checked >>/home/user/checks; grep -q started hello.txt"],
                    "network": {"internet": False},
                },
            )
            id = made.json()["id"]
            task = await platform.rests(http, id)
            assert task["state"] == "review", (task["reason"], (tmp_path / "server.log").read_text()[-4000:])
            await platform.cleaned_up(http, id)
            killed = (tmp_path / "kills").read_text().splitlines()
            ordinary = [step for step in STEPS if step not in (*PROVING, *REPORTING)]  # it proves and reports nothing
            assert sorted(killed) == sorted(f"{when} {step}" for step in ordinary for when in ("before", "after"))
            assert platform.starts == len(killed) + 1

            # One agent, one sandbox, one branch, one pull request.
            assert "+started\n" in (await http.get(f"/tasks/{id}/patch")).text
            assert (await http.get(f"/tasks/{id}/patch")).text.count("+started") == 1
            pulls = (await platform.get(http, "/repositories/app/pulls"))["pulls"]
            assert [pull["head"] for pull in pulls] == [f"task-{id}"]
            branches = (await platform.get(http, "/repositories/app/branches"))["branches"]
            assert sorted(branch["name"] for branch in branches) == ["main", f"task-{id}"]
            entries = (await platform.get(http, f"/tasks/{id}/timeline?limit=2000"))["entries"]
            assert len([one for one in entries if one["kind"] == "result"]) == 1
            steps = (await platform.get(http, f"/tasks/{id}/steps"))["steps"]
            assert {step["status"] for step in steps} == {"done"}
            assert len(set(engine.running()) - before) == 1

            await http.post("/repositories/app/pulls/1/merge", json={})
            for _ in range(200):
                if (await platform.get(http, f"/tasks/{id}"))["state"] == "done":
                    break
                await asyncio.sleep(0.1)
            assert (await http.delete(f"/tasks/{id}")).status_code == 204
            assert set(engine.running()) <= before


async def test_an_agent_at_work_is_found_again_and_nothing_of_it_is_told_twice(tmp_path: Path, engine: Server) -> None:
    with killable(tmp_path, engine) as platform:
        (tmp_path / "kills").write_text("".join(f"{when} {step}\n" for step in STEPS for when in ("before", "after")))
        async with platform.http() as http:
            await platform.get(http, "/tasks")
            await http.post("/repositories", json={"name": "app"})
            script = "".join(f"say line {n}\nwait 0.3\n" for n in range(20)) + "run wc -l </home/user/starts >a.txt\n"
            prompt = f"```script\nrun echo x >>/home/user/starts\n{script}usage 100 10 0.5\n```"
            made = await http.post("/tasks", json={"repository": "app", "prompt": prompt, "agent": "scripted"})
            id = made.json()["id"]
            for seen in (3, 9, 15):
                for _ in range(600):
                    if len(await _said(platform, http, id)) >= seen:
                        break
                    await asyncio.sleep(0.05)
                platform.kill()
            task = await platform.rests(http, id)
            assert task["state"] == "review", task["reason"]
            assert platform.starts == 4 and await _said(platform, http, id) == [f"line {n}" for n in range(20)]
            assert "+1\n" in (await http.get(f"/tasks/{id}/patch")).text  # it was started once
            assert task["cost_usd"] == 0.5 and task["tokens"]["input"] == 100
            await http.post(f"/tasks/{id}/done")
            assert (await http.delete(f"/tasks/{id}")).status_code == 204


async def _said(platform: Killable, http: httpx.AsyncClient, id: str) -> list[str]:
    entries = (await platform.get(http, f"/tasks/{id}/timeline?limit=2000&kinds=message"))["entries"]
    return [one["text"] for one in entries if one["text"].startswith("line ")]
