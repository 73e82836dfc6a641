"""The platform's process is ended with SIGKILL at a hundred random moments while tasks run: none is lost, none is done twice."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest
from tests.e2e.server import Server
from tests.tasks.conftest import engine  # noqa: F401
from tests.tasks.test_durability import killable

from sandlot.platform.core.tasks import STEPS

pytestmark = pytest.mark.long
KILLS = int(os.environ.get("SANDLOT_TEST_KILLS", "100"))


@pytest.mark.timeout(3600)
async def test_a_hundred_kills_at_random_moments(tmp_path: Path, engine: Server) -> None:  # noqa: F811
    before = set(engine.running())
    chance = random.Random(20261118)
    with killable(tmp_path, engine) as platform:
        (tmp_path / "kills").write_text("".join(f"{when} {step}\n" for step in STEPS for when in ("before", "after")))
        async with platform.http() as http:
            await platform.get(http, "/tasks")
            await http.post("/repositories", json={"name": "app"})
            kills, made = 0, list[str]()
            while kills < KILLS:
                for _ in range(3):
                    body = {
                        "repository": "app",
                        "prompt": f"Add file {len(made)}",
                        "command": f"echo x >>/home/user/starts; sleep 1; cp /home/user/starts {len(made)}.txt",
                        "checks": [f"test -s {len(made)}.txt"],
                        "network": {"internet": False},
                    }
                    answer = await http.post("/tasks", json=body, headers={"Idempotency-Key": f"k{len(made)}"})
                    made.append(answer.json()["id"])
                for _ in range(10):
                    await asyncio.sleep(chance.uniform(0.2, 4.0))
                    platform.kill()
                    kills += 1
                    await platform.get(http, "/tasks")
                for id in made[-3:]:
                    task = await platform.rests(http, id, seconds=300)
                    assert task["state"] == "review", (task["reason"], (tmp_path / "server.log").read_text()[-4000:])
                    assert (await http.get(f"/tasks/{id}/patch")).text.count("+x\n") == 1  # started once
                pulls = (await platform.get(http, "/repositories/app/pulls"))["pulls"]
                assert sorted(pull["head"] for pull in pulls) == sorted(f"task-{id}" for id in made)[-100:]
                assert len(set(engine.running()) - before) == 3
                for id in made[-3:]:
                    await http.post(f"/tasks/{id}/done")
                    assert (await http.delete(f"/tasks/{id}")).status_code == 204
                assert set(engine.running()) <= before
