"""Many tasks at once on one repository, within their limit; and a task under the other runtime."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server
from tests.platform.world import Served, by_url
from tests.tasks.world import Tasks


async def test_twenty_tasks_at_a_limit_of_four_all_end_in_the_order_of_their_arrival(
    tmp_path: Path, engine: Server
) -> None:
    configuration = by_url(f"http://127.0.0.1:{engine.port}", engine.key)
    configuration = configuration.model_copy(update={"tasks": replace(configuration.tasks, running=4)})
    async with Served(tmp_path, configuration) as served, served.http(await served.key("ann")) as http:
        ann = Tasks(http, served, await served.key("ann"), tmp_path)
        await ann.repository()
        ids = [await ann.create(f"Add file {n}", command=f"echo {n} >{n}.txt") for n in range(20)]
        most = 0
        while True:
            tasks = (await http.get("/tasks", params={"limit": 100})).json()["tasks"]
            most = max(most, sum(1 for task in tasks if task["state"] == "working"))
            if all(task["state"] not in ("queued", "working") for task in tasks):
                break
            await asyncio.sleep(0.2)
        assert most == 4 and {task["state"] for task in tasks} == {"review"}, [task["reason"] for task in tasks]
        assert sorted(task["pull_request"]["number"] for task in tasks) == list(range(1, 21))
        started = {task["id"]: task["started_at"] for task in tasks}
        assert sorted(ids, key=lambda id: started[id]) == ids
        for number in (20, 1, 11):
            merged = await http.post(f"/repositories/app/pulls/{number}/merge", json={})
            assert merged.status_code == 200, merged.text
        for id in ids:
            await ann.http.post(f"/tasks/{id}/done")
            deleted = await http.delete(f"/tasks/{id}")
            assert deleted.status_code == 204, deleted.text


async def test_a_task_in_a_gvisor_sandbox(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with in_pristine(tmp_path_factory, "gvisor") as engine:
        async with Served(tmp_path, by_url(f"http://127.0.0.1:{engine.port}", engine.key)) as served:
            key = await served.key("ann")
            async with served.http(key) as http:
                ann = Tasks(http, served, key, tmp_path)
                await ann.repository()
                id = await ann.create(
                    "```script\nwrite a.txt <<END\na\nEND\nturn\nwrite b.txt <<END\n{prompt}\nEND\n```",
                    checks=["test -s a.txt"],
                )
                await ann.until(id, "review")
                await ann.post(f"/tasks/{id}/messages", text="And more")  # its sandbox is resumed with its memory
                await ann.until(id, "review")
                assert "+And more" in (await http.get(f"/tasks/{id}/patch")).text
