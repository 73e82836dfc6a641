"""Several attempts at one task, side by side: one becomes the pull request, the others stay as evidence."""

from __future__ import annotations

from tests.e2e.server import Server
from tests.tasks.world import Tasks

# The attempts tell each other apart by the directory of their turn, which has the number of the attempt in it.
COMMAND = """
n=$(basename "$(dirname "$SANDLOT_TURN")")
case $n in
  1) echo wrong >answer.txt ;;
  2) printf 'right\\nand much\\nmore\\n' >answer.txt ;;
  3) echo right >answer.txt ;;
esac
echo "$n" >number.txt
cat /home/user/setup >setup.txt
"""


async def test_the_best_of_three_attempts_becomes_the_pull_request(ann: Tasks, engine: Server) -> None:
    before = set(engine.running())
    await ann.repository(**{".sandlot/setup.sh": "echo once >>/home/user/setup\n"})
    id = await ann.create(
        "Answer", command=COMMAND, checks=["grep -q right answer.txt"], attempts=3, limits={"attempts": 1}
    )
    task = await ann.until(id, "review")
    attempts = (await ann.http.get(f"/tasks/{id}/attempts")).json()["attempts"]
    assert [(one["state"], one["chosen"]) for one in attempts] == [
        ("failing", False),
        ("ready", False),
        ("ready", True),
    ]
    assert len({one["sandbox_id"] for one in attempts}) == 3
    assert [one["checks"][0]["exit_code"] for one in attempts] == [1, 0, 0]
    assert task["pull_request"]["number"] == 1 and task["sandbox_id"] == attempts[2]["sandbox_id"]
    assert "Chosen of 3 attempts" in (await ann.http.get("/repositories/app/pulls/1")).json()["body"]
    assert "+3\n" in (await ann.http.get(f"/tasks/{id}/patch")).text
    assert "+once\n" in (await ann.http.get(f"/tasks/{id}/patch")).text  # prepared once, and forked
    assert (await ann.http.get(f"/tasks/{id}/patch")).text.count("+once") == 1
    assert len([one for one in await ann.entries(id, "command") if "setup.sh" in one["text"]]) == 1
    with engine.http() as there:
        assert not [one for one in there.get("/snapshots").json() if id in str(one)]
    for number, words in ((1, "+wrong"), (2, "+and much")):
        assert words in (await ann.http.get(f"/tasks/{id}/patch", params={"attempt": number})).text
    assert len(set(engine.running()) - before) == 3
    await ann.post(f"/tasks/{id}/done")
    assert (await ann.http.delete(f"/tasks/{id}")).status_code == 204
    assert set(engine.running()) <= before
