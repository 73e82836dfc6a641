"""The commands about tasks, as processes of their own against a real platform; its sandboxes are scripted."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import environment
from tests.platform.fakes import ScriptedProvider
from tests.platform.world import ADMIN, Served, scripted

from sandlot.platform.core.tasks import Entry, EntryKind
from sandlot.server import instance
from sandlot.wiring.clock import now


@dataclass
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Line:
    """A server as the CLI finds it: by its data directory."""

    served: Served

    async def started(self, *words: str, stdin: bytes | None = None) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "sandlot", *words),
            env=environment(SANDLOT_DATA_DIR=str(self.served.place)),
            stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=1 << 20,
        )
        if stdin is not None:
            assert process.stdin is not None
            process.stdin.write(stdin)
            process.stdin.close()
        return process

    async def __call__(self, *words: str, stdin: bytes | None = None) -> Said:
        return await ended(await self.started(*words, stdin=stdin))

    def announce(self) -> None:
        facts = instance.Facts(
            pid=os.getpid(), url=self.served.url, port=self.served.port, domain=None, started_at=now().isoformat()
        )
        instance.announce(self.served.place, facts)


async def ended(process: asyncio.subprocess.Process) -> Said:
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode is not None
    return Said(process.returncode, out.decode(), err.decode())


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Line]:
    async with Served(tmp_path, scripted(), {"scripted": ScriptedProvider()}) as served:
        (tmp_path / "keys").mkdir()
        (tmp_path / "keys" / "default").write_text(f"{ADMIN}\n")
        instance.claim(tmp_path)
        made = Line(served)
        made.announce()
        await made("repo", "create", "app")
        yield made


async def test_work_is_handed_over_with_all_its_options_and_shown_again(line: Line) -> None:
    made = await line(
        *("task", "create", "app", "-", "--agent", "claude", "--no-start", "--json", "--title", "Greet"),
        *(
            "--check",
            "true",
            "--check",
            "test -e hello",
            "--time",
            "2m",
            "--cost",
            "1.5",
            "--turns",
            "9",
            "--tries",
            "2",
        ),
        *(
            "--label",
            "a",
            "--label",
            "b",
            "--no-internet",
            "--allow",
            "pypi.org",
            "--attempts",
            "3",
            "--draft-on-failure",
        ),
        stdin=b"Say hello.\nThen more.",
    )
    assert made.code == 0, made.err
    task = made.json
    assert (task["prompt"], task["title"], task["state"]) == ("Say hello.\nThen more.", "Greet", "todo")
    assert [check["command"] for check in task["checks"]] == ["true", "test -e hello"]
    assert task["limits"] == {"seconds": 120, "turns": 9, "cost_usd": 1.5, "attempts": 2}
    assert task["network"] == {"internet": False, "allow": ["pypi.org"]}
    assert (task["labels"], task["attempt_count"], task["draft_on_failure"]) == (["a", "b"], 3, True)
    shown = (await line("task", "show", task["id"])).out
    assert "Greet" in shown and "test -e hello" in shown and "$1.5" in shown and "pypi.org" in shown
    assert (await line("task", "show", task["id"], "--json")).json["steps"] == []
    assert [row["id"] for row in (await line("task", "list", "--label", "a", "--json")).json] == [task["id"]]
    table = (await line("task", "list", "--state", "todo", "--repo", "app")).out
    assert table.startswith("ID ") and task["id"] in table and "\x1b" not in table
    assert (await line("task", "list", "--search", "nothing like it")).err == "No tasks.\n"
    assert (await line("task", "delete", task["id"], "--json")).json == [{"id": task["id"], "deleted": True}]


async def test_a_command_is_an_agent_and_a_key_makes_one_task_only(line: Line) -> None:
    words = ("task", "create", "app", "--command", "sed -i s/1/2/ VERSION", "--no-start", "--idempotency-key", "once")
    first = await line(*words)
    if "not known" in first.err:
        pytest.skip("the agent `command` is not described yet")
    second = await line(*words)
    assert (first.code, first.out) == (0, second.out)
    assert "Run sed" in first.err


async def test_what_is_wrong_is_told_with_what_to_do(line: Line) -> None:
    for words, code, told in (
        (("create", "app"), 2, "say what is to be done"),
        (("create",), 2, "name a repository"),
        (("create", "app", "x", "--time", "soon"), 2, "30m"),
        (("create", "app", "x", "--file", "/nowhere"), 2, "not both"),
        (("create", "app", "--file", "/nowhere"), 2, "cannot be read"),
        (("message", "nothere"), 2, "say what to tell"),
        (("create", "app", "x", "--agent", "nobody"), 1, "known:"),
        (("show", "nothere"), 1, "task list` shows"),
        (("logs", "-f", "nothere"), 1, "task list` shows"),
        (("message", "nothere", "hi"), 1, "task list` shows"),
        (("list", "--state", "lazy"), 1, "needs_you"),
    ):
        said = await line("task", *words)
        assert (said.code, said.out) == (code, "") and told in said.err, (words, said)


async def test_a_task_is_followed_through_a_restart_of_the_server_until_it_rests(line: Line) -> None:
    first = (await line("task", "create", "app", "First", "--agent", "claude", "--no-start", "--json")).json["id"]
    words = ("task", "create", "app", "Second", "--agent", "claude", "--blocked-by", first)
    task = (await line(*words, "--json")).json
    assert task["reason"] == f"it waits for task {first}"
    following = await line.started("task", "logs", "-f", task["id"])
    as_json = await line.started("task", "logs", "-f", task["id"], "--json")
    assert following.stdout is not None
    assert b"Second" in await asyncio.wait_for(following.stdout.readline(), 60)
    timeline = line.served.deps.timeline
    output = "\n".join(f"line {number}" for number in range(50))
    running = {"id": "1", "command": "pytest -q", "running": True}
    await timeline.add(task["id"], Entry(kind=EntryKind.COMMAND, data=running))
    await line.served.restart()
    line.announce()
    timeline = line.served.deps.timeline
    ends = {"id": "1", "output": output, "exit_code": 1, "running": False}
    await timeline.add(task["id"], Entry(kind=EntryKind.COMMAND, data=ends))
    await timeline.add(task["id"], Entry(kind=EntryKind.MESSAGE, text="all \x1b[31mred"))
    seen = [await asyncio.wait_for(following.stdout.readline(), 60) for _ in range(3)]
    assert b"$ pytest -q  exit code 1" in seen[0] and b"35 lines" in seen[1] and b"line 35" in seen[2]
    stopped = await line("task", "stop", task["id"], "--json")
    assert stopped.json["state"] == "cancelled"
    said = await ended(following)
    assert said.code == 3, said
    assert "line 49" in said.out and "all \ufffd[31mred" in said.out and "\x1b" not in said.out
    assert said.out.count("line 49") == 1 and "cancelled: stopped by its user" in said.out
    assert f"task retry --data-dir {line.served.place} {task['id']}" in said.err
    records = [json.loads(text) for text in (await ended(as_json)).out.splitlines()]
    assert [each.get("kind") for each in records] == ["prompt", "command", "command", "message", "state", None]
    assert (records[-1]["id"], records[-1]["state"]) == (task["id"], "cancelled")
    unfollowed = (await line("task", "logs", task["id"], "--full")).out
    assert "line 0\n" in unfollowed and "more lines" not in unfollowed


async def test_who_leaves_a_followed_task_is_told_that_it_goes_on(line: Line) -> None:
    first = (await line("task", "create", "app", "First", "--agent", "claude", "--no-start", "--json")).json["id"]
    following = await line.started("task", "create", "app", "Second", "--agent", "claude", "--blocked-by", first, "-f")
    assert following.stdout is not None
    assert b"Second" in await asyncio.wait_for(following.stdout.readline(), 60)
    following.send_signal(2)
    said = await ended(following)
    assert said.code == 130 and "The task goes on" in said.err and "task logs" in said.err


async def test_tasks_are_changed_by_one_word(line: Line) -> None:
    id = (await line("task", "create", "app", "x", "--agent", "claude", "--no-start", "--json")).json["id"]
    assert (await line("task", "logs", "-f", id)).code == 4  # nobody begins it
    assert (await line("task", "message", id, "-", "--json", stdin=b"also y")).json["state"] == "todo"
    assert "also y" in (await line("task", "logs", id)).out
    refused = await line("task", "retry", id)
    assert refused.code == 1 and "nothing to retry" in refused.err
    assert (await line("task", "stop", id)).code == 0
    refused = await line("task", "done", id)
    assert refused.code == 1 and "cancelled" in refused.err
