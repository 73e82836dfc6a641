"""What people do to tasks that run or have ended: messages, reviews, stops, retries; and what happens when a sandbox is lost."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.e2e.server import Server
from tests.git.world import well
from tests.tasks.world import Tasks

LONG = """```script
say I begin.
write one.txt <<END
one
END
run sleep 600
done The first turn is over.
turn
write two.txt <<END
{prompt}
END
done The second turn is over.
```"""


async def is_at_work(ann: Tasks, id: str) -> None:
    """The agent has said something, and goes on."""
    for _ in range(600):
        if await ann.entries(id, "message"):
            return
        await asyncio.sleep(0.1)
    raise AssertionError("\n".join(await ann.story(id)))


def files_of(patch: str) -> set[str]:
    return {line.split(" b/")[1] for line in patch.splitlines() if line.startswith("diff --git ")}


async def test_a_message_interrupts_the_agent_and_the_conversation_goes_on(ann: Tasks) -> None:
    await ann.repository()
    id = await ann.create(LONG)
    await is_at_work(ann, id)
    running = await ann.show(id)
    assert running["state"] == "working" and running["last_action"]
    await ann.post(f"/tasks/{id}/messages", text="Use tabs", mode="interrupt")
    await ann.until(id, "review")
    patch = (await ann.http.get(f"/tasks/{id}/patch")).text
    assert files_of(patch) == {"one.txt", "two.txt"} and "+Use tabs" in patch


async def test_a_message_that_can_wait_is_the_next_turn(ann: Tasks) -> None:
    await ann.repository()
    id = await ann.create("```script\nsay I begin.\nwait 3\nturn\nwrite two.txt <<END\n{prompt}\nEND\n```")
    await is_at_work(ann, id)
    await ann.post(f"/tasks/{id}/messages", text="And this")
    task = await ann.until(id, "review")
    assert "+And this" in (await ann.http.get(f"/tasks/{id}/patch")).text and task["pull_request"]["number"] == 1


async def test_a_review_of_a_finished_task_changes_the_same_pull_request(ann: Tasks) -> None:
    clone = await ann.repository()
    id = await ann.create("```script\nwrite a.txt <<END\na\nEND\nturn\nwrite b.txt <<END\n{prompt}\nEND\n```")
    first = await ann.until(id, "review")
    comment = {"path": "a.txt", "line": 1, "text": "Say b, too"}
    assert (await ann.post(f"/tasks/{id}/review", comments=[comment]))["state"] == "queued"
    second = await ann.until(id, "review")
    assert second["sandbox_id"] == first["sandbox_id"] and second["pull_request"]["number"] == 1
    await well("fetch", "-q", at=clone)
    assert "Say b, too" in await well("show", f"origin/task-{id}:b.txt", at=clone)
    # The agent's first commit was at the forge already: its history stays.
    assert await well("rev-list", "--count", f"origin/main..origin/task-{id}", at=clone) == "2"
    await ann.post("/repositories/app/pulls/1/comments", body="And c", author="bob")
    for _ in range(300):
        if any("And c" in one["text"] for one in await ann.entries(id, "prompt")):
            break
        await asyncio.sleep(0.1)
    await ann.until(id, "review")  # its script is over: nothing new came of it


async def test_a_stop_ends_the_agent_and_a_retry_goes_on_with_its_work(ann: Tasks, engine: Server) -> None:
    await ann.repository()
    id = await ann.create(LONG)
    await is_at_work(ann, id)
    await ann.post(f"/tasks/{id}/stop")
    stopped = await ann.until(id, "cancelled")
    assert stopped["reason"] == "stopped by its user" and stopped["pull_request"] is None
    await ann.post(f"/tasks/{id}/messages", text="Go on")
    task = await ann.until(id, "review")
    assert files_of((await ann.http.get(f"/tasks/{id}/patch")).text) == {"one.txt", "two.txt"}
    assert task["sandbox_id"] == stopped["sandbox_id"]


async def test_a_pause_lets_it_rest_until_it_is_started(ann: Tasks) -> None:
    await ann.repository()
    id = await ann.create(command="echo x >> log; sleep $(( $(wc -l < log) > 1 ? 0 : 600 ))")
    for _ in range(300):
        if (await ann.steps(id)).get("agent") == "running":
            break
        await asyncio.sleep(0.1)
    await ann.post(f"/tasks/{id}/pause")
    paused = await ann.until(id, "needs_you")
    assert "paused by its user" in paused["reason"]
    await ann.post(f"/tasks/{id}/start")
    await ann.until(id, "review")


async def test_a_sandbox_that_is_killed_is_replaced_and_the_task_goes_on(ann: Tasks, engine: Server) -> None:
    await ann.repository()
    id = await ann.create(
        command="if [ -e one.txt ]; then echo two >two.txt; else echo one >one.txt; fi", checks=["test -e two.txt"]
    )
    # The check fails once, so the first file is handed in; then the sandbox goes.
    killed: list[str] = []

    async def kill_once() -> None:
        while not killed:
            if any(one["data"].get("status") == "failed" for one in await ann.entries(id, "step")):
                for sandbox in engine.running():
                    with engine.http() as http:
                        if _is_of(http.get(f"/sandboxes/{sandbox}").json(), id):
                            http.delete(f"/sandboxes/{sandbox}")
                            killed.append(sandbox)
            await asyncio.sleep(0.02)

    killing = asyncio.ensure_future(kill_once())
    task = await ann.until(id, "review")
    killing.cancel()
    assert killed, "\n".join(await ann.story(id))
    assert files_of((await ann.http.get(f"/tasks/{id}/patch")).text) == {"one.txt", "two.txt"}
    assert task["pull_request"]["number"] == 1


def _is_of(row: dict[str, Any], task: str) -> bool:
    return bool((row.get("metadata") or {}).get("sandlot-task") == task)


async def test_the_base_that_moved_is_taken_in_and_a_conflict_goes_to_the_agent_once(ann: Tasks) -> None:
    clone = await ann.repository(**{"a.txt": "one\n"})
    id = await ann.create(
        "```script\nsay I begin.\nwait 4\nwrite a.txt <<END\nmine\nEND\nturn\n"
        "run git rebase origin/main; echo both > a.txt; git add a.txt; GIT_EDITOR=true git rebase --continue\n```"
    )
    await is_at_work(ann, id)
    (clone / "a.txt").write_text("theirs\n")
    await well("commit", "-qam", "fix: theirs", at=clone)
    await well("push", "-q", "origin", "HEAD:main", at=clone)
    await ann.until(id, "review")
    kinds = [one["data"]["kind"] for one in await ann.entries(id, "prompt")]
    assert kinds == ["message", "conflict"]
    pull = (await ann.http.get("/repositories/app/pulls/1")).json()
    assert pull["mergeable"] is True
    await well("fetch", "-q", at=clone)
    assert await well("show", f"origin/task-{id}:a.txt", at=clone) == "both"
    assert await well("rev-list", "--count", f"origin/task-{id}..origin/main", at=clone) == "0"


async def test_what_the_git_server_refuses_is_told_to_the_agent_and_then_to_the_person(ann: Tasks) -> None:
    await ann.repository()
    id = await ann.create(
        "```script\nwrite .github/workflows/ci.yml <<END\non: push\nEND\nturn\nsay No.\n```", limits={"attempts": 2}
    )
    task = await ann.until(id, "needs_you")
    assert ".github/workflows" in task["reason"] and task["pull_request"] is None
    told = [one["text"] for one in await ann.entries(id, "git") if one["data"]["action"] == "refused"]
    assert told and "may not change files below .github/workflows" in told[0]
    assert "refused" in [one["data"]["kind"] for one in await ann.entries(id, "prompt")]


async def test_commits_of_the_agent_are_kept_if_they_are_conventional(ann: Tasks) -> None:
    clone = await ann.repository()
    good = 'git checkout -qb elsewhere; for n in a b; do echo $n >$n; git add .; git commit -qm "feat: add $n"; done'
    kept = await ann.create("Add two files", command=good)
    await ann.until(kept, "review")
    bad = "echo c >c; git add .; git commit -qm 'stuff'; echo d >d"
    made = await ann.create("Add two more files", command=bad)
    await ann.until(made, "review")
    await well("fetch", "-q", at=clone)
    log = ("log", "--format=%s", "--reverse")
    assert (await well(*log, f"origin/main..origin/task-{kept}", at=clone)).splitlines() == [
        "feat: add a",
        "feat: add b",
    ]
    assert await well(*log, f"origin/main..origin/task-{made}", at=clone) == "feat: add two more files"


async def test_limits_end_a_turn_and_say_what_to_do(ann: Tasks) -> None:
    await ann.repository()
    slow = await ann.create(command="sleep 600", limits={"seconds": 4})
    dear = await ann.create("```script\nusage 10 10 5\nsay Dear.\n```", limits={"cost_usd": 1.0}, checks=["false"])
    assert "time limit of 4 s" in (await ann.until(slow, "needs_you"))["reason"]
    assert "limits.cost_usd" in (await ann.until(dear, "needs_you"))["reason"]
