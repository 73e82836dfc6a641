"""Commands and sessions in the background, called by a real MCP client."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

from tests.tools.conftest import Caller, Tools


async def until_seen(call: Caller, session: str, text: str) -> dict[str, Any]:
    """Look at a session until it wrote something."""
    deadline, position = time.monotonic() + 60, 0
    while time.monotonic() < deadline:
        view: dict[str, Any] = await call.data("shell_view", session=session)
        if text in view["output"] or not view["running"]:
            break
        position = (await call.data("shell_view", session=session, since=view["next"], wait=2))["next"]
    assert text in view["output"], f"{text!r} is not in {view['output']!r} ({position})"
    return view


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


async def until_gone(pid: int) -> None:
    deadline = time.monotonic() + 30
    while alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        await asyncio.sleep(0.05)


async def test_a_command_says_how_it_ended(tools: Tools) -> None:
    async with tools.caller() as call:
        ended = await call.data("run_command", command="echo out; echo err >&2; pwd; exit 3", cwd="/")
        assert ended == {"exit_code": 3, "stdout": "out\n/\n", "stderr": "err\n"}
        assert (await call.data("run_command", command="kill -9 $$"))["exit_code"] == 137
        assert (await call.data("run_command", command="pwd"))["stdout"].strip() == str(tools.home)
        assert (await call.data("run_command", command="cat"))["exit_code"] == 0, "nobody types anything"
        assert "no such directory" in await call.failure("run_command", command="true", cwd="/nonesuch")


async def test_output_without_end_is_cut_in_the_middle(tools: Tools) -> None:
    async with tools.caller() as call:
        ended = await call.data("run_command", command="echo first; seq 1000000; echo last", timeout=60)
        assert ended["stdout"].startswith("first\n") and ended["stdout"].endswith("last\n")
        assert "characters left out" in ended["stdout"] and len(ended["stdout"]) < 70_000


async def test_a_command_that_takes_too_long_ends_with_all_it_started(tools: Tools) -> None:
    async with tools.caller() as call:
        command = "trap '' TERM; (trap '' TERM; sleep 1000) & echo $!; wait"
        ended = await call.data("run_command", command=command, timeout=2)
        assert ended["timed_out"] is True and ended["exit_code"] is None
        await until_gone(int(ended["stdout"]))


async def test_what_a_command_leaves_in_the_background_does_not_hold_it(tools: Tools) -> None:
    async with tools.caller() as call:
        ended = await asyncio.wait_for(call.data("run_command", command="sleep 1000 & echo $!"), 60)
        pid = int(ended["stdout"])
        assert ended["exit_code"] == 0 and alive(pid)
        await call("run_command", command=f"kill {pid}")


async def test_a_shell_is_typed_into(tools: Tools) -> None:
    async with tools.caller() as call:
        session = (await call.data("shell_start"))["session"]
        await call("shell_write", session=session, text="echo $((6*7))-done")
        view = await until_seen(call, session, "42-done")
        await call("shell_write", session=session, text="sleep 1000; echo interrupted=$?")
        await call("shell_write", session=session, key="ctrl-c")
        await call("shell_write", session=session, text="echo after-$((1+1))")
        later = await until_seen(call, session, "after-2")
        assert "42-done" not in (await call.data("shell_view", session=session, since=view["next"]))["output"]
        assert later["running"] is True
        stopped = await call.data("shell_stop", session=session)
        assert stopped["running"] is False and "exit_code" in stopped
        assert "has ended" in await call.failure("shell_write", session=session, text="more")


async def test_a_session_goes_on_between_callers_and_ends_with_what_it_started(tools: Tools) -> None:
    async with tools.caller() as call:
        command = 'sleep 1000 & echo pid=$!=; echo "in colour: \\033[31mred\\033[0m"; wait'
        session = (await call.data("shell_start", command=command))["session"]
    async with tools.caller("legacy") as call:
        view = await until_seen(call, session, "red")
        pid = int(view["output"].split("=")[1])
        listed = (await call.data("shell_list"))["sessions"]
        assert {"session": session, "running": True}.items() <= next(
            one for one in listed if one["session"] == session
        ).items()
        await call("shell_stop", session=session)
        await until_gone(pid)


async def test_a_program_that_ended_can_still_be_looked_at(tools: Tools) -> None:
    async with tools.caller() as call:
        session = (await call.data("shell_start", command="echo last words; exit 5", wait=0))["session"]
        await until_seen(call, session, "last words")
        view = await call.data("shell_view", session=session, since=10_000, wait=60)  # until there is no more to come
        assert view["exit_code"] == 5
        assert "there is no session" in await call.failure("shell_view", session="sh999")


async def test_a_flood_of_output_keeps_its_end(tools: Tools) -> None:
    async with tools.caller() as call:
        session = (await call.data("shell_start", command="seq 1000000; echo the end"))["session"]
        view = await until_seen(call, session, "the end")
        assert len(view["output"]) < 70_000 and "characters before this" in view["output"]
        assert (await call.data("shell_view", session=session, since=0))["lost"] > 0
