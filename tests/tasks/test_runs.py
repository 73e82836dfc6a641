"""Tasks from prompt to pull request, in real sandboxes without internet, with the repository hosted here."""

from __future__ import annotations

from tests.git.world import well
from tests.tasks.world import Tasks


async def test_a_command_becomes_a_pull_request_that_is_merged(ann: Tasks) -> None:
    clone = await ann.repository(VERSION="1.0\n")
    id = await ann.create(
        "Bump the version", command="sed -i s/1.0/1.1/ VERSION", checks=["grep -q 1.1 VERSION"], labels=["release"]
    )
    task = await ann.until(id, "review")
    assert task["pull_request"]["number"] == 1 and task["checks"][0]["exit_code"] == 0
    assert task["changes"] == {"files": 1, "added": 1, "removed": 1} and task["isolation"]
    assert task["pull_request"]["url"] == "/console/repositories/app/pulls/1"  # under the address of the console
    pull = (await ann.http.get("/repositories/app/pulls/1")).json()
    assert pull["head"] == f"task-{id}" and pull["base"] == "main" and pull["labels"] == ["release"]
    assert "grep -q 1.1 VERSION" in pull["body"] and f"/tasks/{id}" in pull["body"]
    assert set((await ann.rested(id)).values()) == {"done"}
    await well("fetch", "-q", at=clone)
    subject, author, body = (await well("log", "-1", "--format=%s%x00%an%x00%b", f"origin/task-{id}", at=clone)).split(
        "\0"
    )
    assert subject == "chore: bump the version" and author == "ann" and "Co-authored-by:" in body
    merged = await ann.http.post("/repositories/app/pulls/1/merge", json={})
    assert merged.status_code == 200, merged.text
    done = await ann.until(id, "done")
    assert done["pull_request"]["state"] == "merged" and "merged" in done["reason"]
    await well("pull", "-q", at=clone)
    assert (clone / "VERSION").read_text() == "1.1\n"
    # What is said after the merge begins a pull request of its own, on the base as it is now.
    await ann.post(f"/tasks/{id}/messages", text="Again")
    again = await ann.until(id, "done", "review")
    assert (again["state"], again["reason"]) == ("done", "nothing was changed")


async def test_an_agent_is_followed_told_of_failing_checks_and_ends_with_what_it_cost(ann: Tasks) -> None:
    await ann.repository(**{"calc.py": "def add(a, b):\n    return a - b\n"})
    id = await ann.create(
        """Fix the addition in calc.py.
```script
say I look at the file first.
read calc.py
edit calc.py <<END
    return a - b
====
    return a * b * 1  # another size: Python tells files apart by seconds and size
END
usage 1000 200 0.05
done It multiplies now.
turn
edit calc.py <<END
    return a * b * 1  # another size: Python tells files apart by seconds and size
====
    return a + b
END
usage 500 100 0.02
done It adds now.
```""",
        checks=["python3 -c 'import calc; assert calc.add(2, 3) == 5'", "test -f calc.py"],
    )
    task = await ann.until(id, "review")
    assert [check["exit_code"] for check in task["checks"]] == [0, 0]
    assert task["cost_usd"] == 0.07 and task["tokens"]["input"] == 1500 and task["changes"]["files"] == 1
    prompts = [(one["data"]["kind"], one["text"]) for one in await ann.entries(id, "prompt")]
    assert [kind for kind, _ in prompts] == ["message", "checks"]
    assert "AssertionError" in prompts[1][1] and "exit code 1" in prompts[1][1]
    tests = [one["data"]["exit_code"] for one in await ann.entries(id, "test")]
    assert tests == [1, 0, 0, 0]
    kinds = {one["kind"] for one in await ann.entries(id)}
    assert {"message", "edit", "result", "step", "state", "git"} <= kinds
    assert "It adds now." in (await ann.http.get("/repositories/app/pulls/1")).json()["body"]
    diff = (await ann.http.get(f"/tasks/{id}/diff")).json()
    assert [file["path"] for file in diff["files"]] == ["calc.py"] and "+    return a + b" in diff["files"][0]["patch"]
    assert "+    return a + b" in (await ann.http.get(f"/tasks/{id}/patch")).text


async def test_checks_that_never_pass_end_with_their_output_and_a_draft(ann: Tasks) -> None:
    await ann.repository()
    id = await ann.create(
        command="echo x >> README.md",
        checks=["echo it is broken; exit 3"],
        limits={"attempts": 2},
        draft_on_failure=True,
    )
    task = await ann.until(id, "needs_you")
    assert "checks fail" in task["reason"] and task["pull_request"]["draft"] is True
    assert task["checks"][0]["exit_code"] == 3 and "it is broken" in task["checks"][0]["output"]
    assert (await ann.http.get("/repositories/app/pulls/1")).json()["checks"][0]["status"] == "failure"
    assert len(await ann.entries(id, "test")) == 2


async def test_a_task_that_changes_nothing_is_done_and_says_so(ann: Tasks) -> None:
    await ann.repository()
    id = await ann.create(command="cat README.md", checks=["true"])
    task = await ann.until(id, "done")
    assert task["reason"] == "nothing was changed" and task["pull_request"] is None
    assert (await ann.http.get("/repositories/app/pulls")).json()["pulls"] == []


async def test_a_question_waits_for_its_answer_and_the_conversation_goes_on(ann: Tasks) -> None:
    await ann.repository()
    id = await ann.create(
        """```script
ask Which colour? | red | blue
turn
write colour.txt <<END
{prompt}
END
done Painted.
```"""
    )
    asking = await ann.until(id, "needs_you")
    assert "Which colour?" in asking["reason"] and asking["sandbox_id"]
    await ann.post(f"/tasks/{id}/messages", text="blue")
    done = await ann.until(id, "review")
    assert done["sandbox_id"] == asking["sandbox_id"]
    assert "+blue" in (await ann.http.get(f"/tasks/{id}/patch")).text
