"""The typed client against a real platform: repositories, pull requests, tasks, and streams that find their way back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.git.world import commit, well
from tests.platform.world import ADMIN, Served, until

from sandlot.client import Client, ClientError, NotFound, TaskLimits, TaskNetwork
from sandlot.platform.core.tasks import Entry, EntryKind


async def test_repositories_and_pull_requests(quick: Served, tmp_path: Path) -> None:
    client = quick.client()
    made = await client.repositories.create("app")
    assert (made.forge, made.default_branch, made.clone_url) == ("local", "main", f"{quick.url}/git/app.git")
    clone = tmp_path / "clone"
    await well("clone", "-q", made.clone_url.replace("://", f"://x:{ADMIN}@"), clone)
    await well("checkout", "-qb", "topic", at=clone)
    await commit(clone, "a.txt", "one\n")
    await well("push", "-q", "origin", "HEAD", at=clone)
    assert [branch.name for branch in await client.repositories.branches("app")] == ["main", "topic"]
    pull = await client.pull_requests.open("app", title="Add a", head="topic")
    assert (pull.number, pull.state, pull.base) == (1, "open", "main")
    await client.pull_requests.comment("app", 1, "Why?", path="a.txt", line=1)
    assert [(one.body, one.line) for one in (await client.pull_requests.get("app", 1)).comments] == [("Why?", 1)]
    diff = await client.pull_requests.diff("app", 1)
    assert [(file.path, file.status, file.added) for file in diff.files] == [("a.txt", "added", 1)]
    assert "+one" in diff.patch
    assert (await client.pull_requests.merge("app", 1)).state == "merged"
    with pytest.raises(ClientError) as refused:
        await client.pull_requests.close("app", 1)
    assert refused.value.code == 409
    assert await client.pull_requests.list("app", state="open") == []
    await client.repositories.remove("app")
    assert await client.repositories.list() == []
    with pytest.raises(NotFound):
        await client.repositories.get("app")


async def test_tasks_are_typed_from_their_creation_to_their_end(quick: Served) -> None:
    client = await quick.user("ann")
    await client.repositories.create("app")
    limits, network = TaskLimits(seconds=60, cost_usd=2.0), TaskNetwork(internet=False, allow=("pypi.org",))
    task = await client.tasks.create(
        *("app", "Say hello. Then more."),
        agent="claude",
        checks=["true"],
        limits=limits,
        network=network,
        labels=["a"],
        start=False,
        idempotency_key="one",
    )
    again = await client.tasks.create("app", "Say hello.", agent="claude", start=False, idempotency_key="one")
    assert again.id == task.id
    info = task.info
    assert (info.state, info.title, info.limits, info.network) == ("todo", "Say hello", limits, network)
    assert (info.checks[0].command, info.checks[0].exit_code, info.created_at.tzinfo is not None) == (
        "true",
        None,
        True,
    )
    assert (await task.edit(title="Hi")).title == "Hi"
    assert [one.id for one in await client.tasks.list(states=["todo"], label="a")] == [task.id]
    assert await client.tasks.list(states=["done"]) == []
    for _ in range(3):
        await client.tasks.create("app", "More", agent="claude", start=False)
    assert len(await client.tasks.list()) == 4 and len(await client.tasks.list(limit=2)) == 2
    await task.message("and goodbye")
    assert [(entry.kind, entry.text) for entry in await task.timeline()][1:] == [("prompt", "and goodbye")]
    assert await task.timeline(kinds=["command"]) == []
    assert await task.steps() == [] and await task.attempts() == []
    waiting = asyncio.create_task(task.wait(timeout=60))
    await asyncio.sleep(0)
    assert (await task.stop()).state == "cancelled"
    assert (await waiting).reason == "stopped by its user"
    assert (await task.refresh()).is_resting
    await task.delete()
    with pytest.raises(NotFound):
        await client.tasks.get(task.id)
    with pytest.raises(NotFound):
        await task.wait(timeout=60)


async def test_a_stream_of_a_task_goes_on_after_a_restart_and_repeats_nothing(quick: Served) -> None:
    client = quick.client()
    await client.repositories.create("app")
    task = await client.tasks.create("app", "Begin", agent="claude", start=False)
    seen: list[str] = []
    states: list[str] = []

    async def follow() -> None:
        async for news in task.events():
            if news.entry is not None:
                seen.append(news.entry.text)
            if news.task is not None:
                states.append(news.task.state)

    following = asyncio.create_task(follow())
    await quick.deps.timeline.add(task.id, Entry(kind=EntryKind.MESSAGE, text="before"))
    await until(lambda: seen == ["Begin", "before"])
    await quick.restart()
    await quick.deps.timeline.add(task.id, Entry(kind=EntryKind.MESSAGE, text="after"))
    await until(lambda: len(seen) == 3)
    assert seen == ["Begin", "before", "after"]
    await task.stop()
    await until(lambda: states[-1] == "cancelled")
    with pytest.raises(TimeoutError):
        await task.wait(timeout=0.5, states=["done"])
    await task.delete()
    await asyncio.wait_for(following, 60)  # what is deleted has no more news


async def test_a_server_that_is_not_there_is_told(tmp_path: Path) -> None:
    async with Client("http://127.0.0.1:1", "key") as client:
        with pytest.raises(ClientError) as refused:
            await client.tasks.list()
    assert refused.value.code == 0 and "does not answer" in str(refused.value)
