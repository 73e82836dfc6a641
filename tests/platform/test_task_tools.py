"""Tasks over MCP, by a real MCP client: agents hand out work, within the depth and the budget of their own."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

from mcp import Client
from tests.platform.test_mcp import call, tools
from tests.platform.world import Served

from sandlot.platform.core.errors import PlatformError
from sandlot.platform.core.model import Scope
from sandlot.platform.core.tasks import (
    Attempt,
    Entry,
    EntryKind,
    Task,
    TaskLimits,
    TaskPolicy,
    TaskSpec,
    TaskStatus,
    TokenUsage,
)
from sandlot.platform.tasks.children import child_limits
from sandlot.wiring.clock import now


async def told(client: Client, name: str, **arguments: Any) -> Any:
    answer = await call(client, name, **arguments)
    assert not answer.startswith("error: "), answer
    return json.loads(answer)


async def test_an_agent_hands_out_work_watches_it_and_talks_to_it(quick: Served) -> None:
    async with quick.http(await quick.key("ada")) as http:
        await http.post("/repositories", json={"name": "app"})
    async with tools(quick, await quick.key("ada")) as client:
        work = {"repository": "app", "agent": "claude", "start": False}
        made = await told(client, "task_create", prompt="Say hello. Then more.", checks=["true"], cost_usd=2.0, **work)
        assert (made["state"], made["title"], made["parent"]) == ("todo", "Say hello", None)
        child = await told(client, "task_create", prompt="A part", parent=made["id"], cost_usd=1.5, seconds=60, **work)
        assert child["parent"] == made["id"]
        assert "0.50 USD left" in await call(client, "task_create", prompt="x", parent=made["id"], cost_usd=1, **work)
        rest = await told(client, "task_create", prompt="x", parent=made["id"], **work)
        assert "used up" in await call(client, "task_create", prompt="x", parent=made["id"], **work)
        below = await told(client, "task_create", prompt="x", parent=child["id"], **work)
        assert "levels deep" in await call(client, "task_create", prompt="x", parent=below["id"], **work)
        listed = await told(client, "task_list", parent=made["id"], state="todo")
        assert [task["id"] for task in listed["tasks"]] == [rest["id"], child["id"]]
        await quick.deps.timeline.add(child["id"], Entry(kind=EntryKind.MESSAGE, text="I have begun. " + "x" * 5000))
        waiting = asyncio.create_task(told(client, "task_show", id=child["id"], wait=60, entries=3))
        await asyncio.sleep(0.2)
        await told(client, "task_message", id=child["id"], text="hurry")
        assert (await told(client, "task_stop", id=child["id"]))["state"] == "cancelled"
        shown = await waiting
        assert (shown["state"], shown["reason"]) == ("cancelled", "stopped by its user")
        assert [said["kind"] for said in shown["said"]] == ["message", "state"] and len(shown["said"][0]["text"]) < 3000
        assert shown["checks"] == [] and shown["prompt"] == "A part"
        # What it did not spend is free again.
        assert (await told(client, "task_create", prompt="x", parent=made["id"], cost_usd=1.5, **work))[
            "state"
        ] == "todo"


async def test_work_of_others_and_unknown_repositories_are_refused(quick: Served) -> None:
    async with quick.http(await quick.key("ada")) as http:
        await http.post("/repositories", json={"name": "app"})
        body = {"repository": "app", "prompt": "x", "agent": "claude", "start": False}
        id = (await http.post("/tasks", json=body)).json()["id"]
    async with tools(quick, await quick.key("bob")) as bob:
        assert "no repository 'app'" in await call(bob, "task_create", repository="app", prompt="x")
        for name, more in (("task_show", {}), ("task_message", {"text": "hi"}), ("task_stop", {})):
            assert "was not found" in await call(bob, name, id=id, **more)
        assert (await told(bob, "task_list"))["tasks"] == []
    async with tools(quick, await quick.key("ada", Scope.READ)) as reader:
        assert (await told(reader, "task_show", id=id))["id"] == id
        assert "write" in await call(reader, "task_stop", id=id)


def test_children_share_the_budget_of_their_parent() -> None:
    def task(cost: float | None, spent: float = 0.0, status: TaskStatus = TaskStatus.WORKING, depth: int = 0) -> Task:
        limits = TaskLimits(cost_usd=cost, seconds=600)
        spec = TaskSpec(repository="r", prompt="p", title="t", agent="a", limits=limits, depth=depth)
        attempt = Attempt(number=1, agent="a", usage=TokenUsage(cost_usd=spent))
        return Task(id="x", user_id="u", status=status, spec=spec, created_at=now(), attempts=(attempt,))

    policy, wanted = TaskPolicy(depth=2, children=3), TaskLimits()
    assert child_limits(task(None), [task(5)], wanted, policy) == replace(wanted, seconds=600)
    assert child_limits(task(10, 1), [task(2), task(5, 4, TaskStatus.DONE)], wanted, policy).cost_usd == 3
    assert child_limits(task(10, 1), [task(2, 6)], wanted, policy).cost_usd == 3  # it spent more than it should have
    for parent, children, asked in (
        (task(10, 9), [task(1)], wanted),
        (task(10), [], TaskLimits(cost_usd=11)),
        (task(None), [task(None)] * 3, wanted),
        (task(None, depth=2), [], wanted),
    ):
        try:
            child_limits(parent, children, asked, policy)
        except PlatformError:
            continue
        raise AssertionError("it was allowed")
