"""Tasks as records over HTTP: created once, listed, moved, blocked by others, seen by their owners only."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.platform.fakes import ScriptedProvider
from tests.platform.world import Served, scripted

from sandlot.platform.core.tasks import TASK_MOVES, Task, TaskSpec, TaskStatus
from sandlot.platform.tasks.queue import next_tasks
from sandlot.platform.tasks.service import title_of
from sandlot.wiring.clock import now


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with Served(tmp_path, scripted(), {"scripted": ScriptedProvider()}) as served:
        yield served


@pytest.fixture
async def http(served: Served) -> AsyncIterator[httpx.AsyncClient]:
    async with served.http(await served.key("ann")) as client:
        await client.post("/repositories", json={"name": "app"})
        yield client


async def make(http: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    wanted = {"repository": "app", "prompt": "Say hello. Then more.", "agent": "claude", "start": False, **body}
    answer = await http.post("/tasks", json=wanted)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def test_a_task_is_created_listed_changed_and_deleted(http: httpx.AsyncClient) -> None:
    made = await make(http, labels=["first"], checks=["true"], limits={"seconds": 60})
    assert (made["state"], made["title"], made["base"]) == ("todo", "Say hello", "main")
    assert made["branch"] == f"task-{made['id']}" and made["limits"]["attempts"] == 3
    assert made["checks"] == [{"command": "true", "exit_code": None, "output": "", "seconds": 0.0}]
    other = await make(http, prompt="Something else")
    page = (await http.get("/tasks", params={"limit": 1})).json()
    assert [task["id"] for task in page["tasks"]] == [other["id"]] and page["cursor"] > 0
    page = (await http.get("/tasks", params={"after": page["next"]})).json()
    assert [task["id"] for task in page["tasks"]] == [made["id"]]
    for wanted in ({"label": "first"}, {"q": "HELLO"}):
        assert [t["id"] for t in (await http.get("/tasks", params=wanted)).json()["tasks"]] == [made["id"]]
    changed = (await http.patch(f"/tasks/{made['id']}", json={"title": "Hi", "labels": []})).json()
    assert changed["title"] == "Hi" and changed["revision"] > made["revision"]
    assert (await http.delete(f"/tasks/{made['id']}")).status_code == 204
    assert (await http.get(f"/tasks/{made['id']}")).status_code == 404


async def test_a_request_that_is_sent_twice_makes_one_task(http: httpx.AsyncClient) -> None:
    body = {"repository": "app", "prompt": "x", "agent": "claude", "start": False}
    answers = [await http.post("/tasks", json=body, headers={"Idempotency-Key": "k1"}) for _ in range(2)]
    assert answers[0].json()["id"] == answers[1].json()["id"]


async def test_tasks_of_others_are_not_found(served: Served, http: httpx.AsyncClient) -> None:
    made = await make(http)
    async with served.http(await served.key("bob")) as bob, served.http() as admin:
        assert (await bob.get(f"/tasks/{made['id']}")).status_code == 404
        assert (await bob.get("/tasks")).json()["tasks"] == []
        assert (await admin.get(f"/tasks/{made['id']}")).json()["user_id"] == "ann"


async def test_wrong_requests_are_refused_with_what_to_do(http: httpx.AsyncClient) -> None:
    for body, word in (
        ({"agent": "nobody"}, "known:"),
        ({"agent": "command"}, "command"),
        ({"provider": "mars"}, "provider"),
        ({"secrets": ["x"]}, "secret"),
        ({"blocked_by": ["nothere2"]}, "not found"),
        ({"parent": "nothere2"}, "not found"),
        ({"limits": {"seconds": 0}}, "seconds"),
        ({"unknown": 1}, "unknown"),
    ):
        answer = await http.post("/tasks", json={"repository": "app", "prompt": "x", "agent": "claude", **body})
        assert 400 <= answer.status_code < 500 and word in answer.text, (body, answer.text)


async def test_a_circle_of_tasks_is_refused(http: httpx.AsyncClient) -> None:
    first = await make(http)
    second = await make(http, blocked_by=[first["id"]])
    answer = await http.patch(f"/tasks/{first['id']}", json={"blocked_by": [second["id"]]})
    assert answer.status_code == 400 and "wait for itself" in answer.text
    assert "waits for task" in (await http.post(f"/tasks/{second['id']}/start")).json()["reason"]


async def test_children_have_a_depth_and_a_number(http: httpx.AsyncClient) -> None:
    parent = await make(http)
    child = await make(http, parent=parent["id"])
    grandchild = await make(http, parent=child["id"])
    answer = await http.post(
        "/tasks", json={"repository": "app", "prompt": "x", "agent": "claude", "parent": grandchild["id"]}
    )
    assert answer.status_code == 429


async def test_every_move_is_an_event_and_an_entry(served: Served, http: httpx.AsyncClient) -> None:
    cursor = (await http.get("/tasks")).json()["cursor"]
    made = await make(http)
    assert (await http.post(f"/tasks/{made['id']}/stop")).json()["state"] == "cancelled"
    found: list[tuple[str, str]] = []
    async with http.stream("GET", "/events", params={"after": cursor, "subject": f"task:{made['id']}"}) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                event = json.loads(line[6:])
                found.append((event["type"], event["data"]["task"]["state"]))
                assert event["data"]["task"]["prompt"] == ""
            if len(found) == 2:
                break
    assert found == [("task.created", "todo"), ("task.state", "cancelled")]
    entries = (await http.get(f"/tasks/{made['id']}/timeline")).json()["entries"]
    assert [entry["kind"] for entry in entries] == ["prompt", "state"]
    async with http.stream("GET", f"/tasks/{made['id']}/events", params={"after": entries[0]["seq"]}) as answer:
        seen = [line async for line in _first(answer, 2)]
    assert [json.loads(line[6:])["state"] for line in seen] == ["cancelled", "cancelled"]


async def _first(answer: httpx.Response, count: int) -> AsyncIterator[str]:
    async for line in answer.aiter_lines():
        if line.startswith("data: "):
            yield line
            count -= 1
            if not count:
                return


def test_every_state_has_its_moves() -> None:
    assert set(TASK_MOVES) == set(TaskStatus)


def _task(user: str, number: int) -> Task:
    spec = TaskSpec(repository="app", prompt="x", title="x", agent="command")
    return Task(id=f"t{number}", user_id=user, status=TaskStatus.QUEUED, spec=spec, created_at=now())


def test_users_with_fewer_tasks_at_work_come_first() -> None:
    from sandlot.platform.core.tasks import TaskPolicy

    queued = [_task("ann", 1), _task("ann", 2), _task("ann", 3), _task("bob", 4)]
    chosen = next_tasks(queued, [_task("ann", 9)], TaskPolicy(running=3))
    assert [task.id for task in chosen] == ["t4", "t1"]
    assert next_tasks(queued, [_task("ann", 9)], TaskPolicy(running=1)) == []
    limited = next_tasks(queued, [], TaskPolicy(running=9, running_per_user=1))
    assert [task.id for task in limited] == ["t1", "t4"]


def test_titles_are_the_first_sentence() -> None:
    assert title_of("# Add a route. And a test") == "Add a route"
    assert len(title_of("x" * 500)) == 120
