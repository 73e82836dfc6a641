"""Runs that cannot go on say why and what to do: a set-up script that fails, an agent that acts too often."""

from __future__ import annotations

from tests.tasks.world import Tasks


async def test_a_set_up_script_that_fails_says_so_and_a_retry_runs_it_again(ann: Tasks) -> None:
    script = "echo installing; test -e /home/user/ready || { echo 'no such package: left-pad' >&2; exit 3; }\n"
    await ann.repository(**{".sandlot/setup.sh": script})
    id = await ann.create("Change it", command="echo x >x.txt")
    task = await ann.rests(id)
    assert task["state"] == "needs_you" and task["pull_request"] is None
    assert ".sandlot/setup.sh" in task["reason"] and "exit code 3" in task["reason"]
    assert "no such package: left-pad" in task["reason"] and "retry" in task["reason"]
    steps = await ann.rested(id)
    assert (steps["setup"], steps["agent"]) == ("failed", "pending")
    look = {"sandbox_id": task["sandbox_id"], "command": "touch /home/user/ready"}
    assert (await ann.http.post("/sandboxes/run-command", json=look)).json()["exit_code"] == 0
    await ann.post(f"/tasks/{id}/retry")
    again = await ann.until(id, "review")
    assert again["changes"]["files"] == 1 and again["sandbox_id"] == task["sandbox_id"]


async def test_an_agent_that_acts_too_often_is_ended_and_goes_on_when_it_may(ann: Tasks) -> None:
    await ann.repository()
    lines = "".join(f"run echo {number} >>log.txt\nwait 0.2\n" for number in range(30))
    id = await ann.create(f"```script\n{lines}done All of it.\n```", agent="scripted", limits={"turns": 3})
    task = await ann.rests(id)
    assert task["state"] == "needs_you" and "acted 3 times" in task["reason"] and "limits.turns" in task["reason"]
    assert task["pull_request"] is None and 0 < task["changes"]["added"] < 30  # what it did is kept
    assert (await ann.rested(id))["agent"] == "failed"
