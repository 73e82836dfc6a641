"""Sandboxes of tasks that rest: kept for a while, deleted for others that need room, and replaced when their task goes on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from tests.e2e.server import Server
from tests.git.world import well
from tests.platform.world import Served, by_url
from tests.tasks.world import Tasks

SCRIPT = "```script\nwrite a.txt <<END\na\nEND\n```"


async def test_a_sandbox_that_was_kept_long_enough_goes_and_a_message_begins_another(
    tmp_path: Path, engine: Server
) -> None:
    before = set(engine.running())
    configuration = by_url(f"http://127.0.0.1:{engine.port}", engine.key)
    configuration = configuration.model_copy(update={"tasks": replace(configuration.tasks, keep_sandbox_s=1)})
    async with Served(tmp_path, configuration) as served:
        key = await served.key("ann")
        async with served.http(key) as http:
            ann = Tasks(http, served, key, tmp_path)
            clone = await ann.repository()
            id = await ann.create(SCRIPT)
            await ann.until(id, "review")
            for _ in range(300):
                if set(engine.running()) <= before:
                    break
                await asyncio.sleep(0.1)
            assert set(engine.running()) <= before and (await ann.show(id))["sandbox_id"] is None
            await ann.post(f"/tasks/{id}/messages", text="```script\nwrite b.txt <<END\nb\nEND\n```")
            await ann.until(id, "review")
            await well("fetch", "-q", at=clone)
            listed = await well("ls-tree", "--name-only", f"origin/task-{id}", at=clone)
            assert {"a.txt", "b.txt"} <= set(listed.splitlines())


async def test_a_user_with_too_many_sandboxes_loses_the_one_that_rests_longest(tmp_path: Path, engine: Server) -> None:
    configuration = by_url(f"http://127.0.0.1:{engine.port}", engine.key, sessions_per_user=2)
    async with Served(tmp_path, configuration) as served:
        key = await served.key("ann")
        async with served.http(key) as http:
            ann = Tasks(http, served, key, tmp_path)
            await ann.repository()
            ids = []
            for _ in range(3):
                ids.append(await ann.create(SCRIPT))
                await ann.until(ids[-1], "review")
            assert [(await ann.show(id))["sandbox_id"] is None for id in ids] == [True, False, False]
            for id in ids:
                await ann.post(f"/tasks/{id}/done")
                assert (await http.delete(f"/tasks/{id}")).status_code == 204
