"""Commands, through the official SDK."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from e2b import AsyncSandbox, CommandExitException, Sandbox
from e2b.exceptions import (
    AuthenticationException,
    InvalidArgumentException,
    NotFoundException,
    SandboxException,
    TimeoutException,
)
from tests.guest.running import Envd, eventually

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can run commands as others")


def test_a_command_gives_its_output_and_exit_code(sandbox: Sandbox) -> None:
    result = sandbox.commands.run("echo out; echo err >&2")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 0)
    with pytest.raises(CommandExitException) as failure:
        sandbox.commands.run("exit 7")
    assert failure.value.exit_code == 7
    assert failure.value.error == "exit status 7"


@as_root
def test_a_command_runs_as_the_asked_user_with_all_its_groups(sandbox: Sandbox) -> None:
    status = sandbox.commands.run("cat /proc/self/status").stdout
    fields = dict(line.split(":", 1) for line in status.splitlines())
    assert fields["Uid"].split() == ["1000"] * 4
    assert fields["Gid"].split() == ["1000"] * 4
    assert fields["Groups"].split() == ["1000", "4321"]
    assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == 0
    assert fields["SigIgn"].strip() == fields["SigBlk"].strip() == "0" * 16
    root = sandbox.commands.run("id -u; id -G", user="root").stdout
    assert root == "0\n0\n"


def test_a_command_sees_only_the_environment_meant_for_it(sandbox: Sandbox, envd: Envd) -> None:
    text = sandbox.commands.run("env -0", envs={"MINE": "a b\nc"}).stdout
    found = dict(item.split("=", 1) for item in text.split("\0") if item)
    assert found["MINE"] == "a b\nc"
    assert found["GIVEN"] == "1"
    assert found["HOME"] == str(envd.home)
    assert found["USER"] == found["LOGNAME"] == "user"
    assert (found["E2B_SANDBOX"], found["E2B_SANDBOX_ID"], found["E2B_TEMPLATE_ID"]) == ("true", "itest", "base")
    assert not {name for name in found if name.startswith(("PYTHON", "LD_", "LEAK"))}


def test_a_command_inherits_no_descriptor_of_the_daemon(sandbox: Sandbox) -> None:
    # The descriptor of the listing itself is the fourth.
    assert len(sandbox.commands.run("ls /proc/self/fd").stdout.split()) == 4


def test_the_working_directory_is_home_relative_to_home_or_a_clear_error(sandbox: Sandbox, envd: Envd) -> None:
    assert sandbox.commands.run("pwd").stdout.strip() == str(envd.home)
    sandbox.files.make_dir("deep/er")
    assert sandbox.commands.run("pwd", cwd="deep/er").stdout.strip() == f"{envd.home}/deep/er"
    assert sandbox.commands.run("pwd", cwd="~/deep").stdout.strip() == f"{envd.home}/deep"
    with pytest.raises(InvalidArgumentException, match="cwd '/no/where' does not exist"):
        sandbox.commands.run("pwd", cwd="/no/where")


def test_an_unknown_user_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(AuthenticationException, match="invalid username: 'nobody-here'"):
        sandbox.commands.run("true", user="nobody-here")


def test_a_timeout_kills_the_command_and_all_it_started(sandbox: Sandbox, envd: Envd) -> None:
    with pytest.raises(TimeoutException):
        sandbox.commands.run("echo $$ > pids; sleep 300 & echo $! >> pids; sleep 300", timeout=0.5)
    pids = [int(line) for line in (envd.home / "pids").read_text().split()]
    assert len(pids) == 2
    eventually(lambda: not any(_alive(pid) for pid in pids))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_client_that_leaves_does_not_end_the_command(sandbox: Sandbox, envd: Envd) -> None:
    handle = sandbox.commands.run("for i in 1 2 3 4 5 6 7 8; do sleep 0.1; done; echo done > left", background=True)
    handle.disconnect()
    eventually((envd.home / "left").exists)


def test_several_clients_follow_one_process(sandbox: Sandbox) -> None:
    first = sandbox.commands.run("read line; echo got $line", background=True, stdin=True)
    second = sandbox.commands.connect(first.pid)
    sandbox.commands.send_stdin(first.pid, "hello\n")
    assert first.wait().stdout == second.wait().stdout == "got hello\n"


def test_an_ended_process_can_still_be_asked_how_it_ended(sandbox: Sandbox) -> None:
    handle = sandbox.commands.run("exit 3", background=True)
    with pytest.raises(CommandExitException):
        handle.wait()
    with pytest.raises(CommandExitException) as again:
        sandbox.commands.connect(handle.pid).wait()
    assert again.value.exit_code == 3


def test_closing_stdin_ends_a_reader(sandbox: Sandbox) -> None:
    handle = sandbox.commands.run("cat", background=True, stdin=True)
    sandbox.commands.send_stdin(handle.pid, "über\n")
    sandbox.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "über\n"


def test_without_stdin_a_reader_ends_at_once_and_input_is_refused(sandbox: Sandbox) -> None:
    assert sandbox.commands.run("cat; echo end").stdout == "end\n"
    handle = sandbox.commands.run("sleep 30", background=True, stdin=False)
    with pytest.raises(SandboxException, match="stdin not enabled or closed"):
        sandbox.commands.send_stdin(handle.pid, "x")
    assert handle.kill()


def test_what_was_killed_is_gone_when_the_kill_returns(sandbox: Sandbox) -> None:
    for _ in range(10):
        handle = sandbox.commands.run("sleep 300", background=True)
        assert handle.kill()
        with pytest.raises(CommandExitException):
            sandbox.commands.run(f"kill -0 {handle.pid}")


def test_a_kill_is_reported_as_a_signal_and_a_second_one_finds_nothing(sandbox: Sandbox) -> None:
    handle = sandbox.commands.run("sleep 300 | cat", background=True)
    assert handle.kill()
    with pytest.raises(CommandExitException) as ended:
        handle.wait()
    assert (ended.value.exit_code, ended.value.error) == (-1, "signal: killed")
    assert not sandbox.commands.kill(handle.pid)


def test_output_held_open_by_a_child_delays_the_end_until_it_closes(sandbox: Sandbox) -> None:
    started = time.monotonic()
    result = sandbox.commands.run("(sleep 0.6; echo late) & echo early")
    assert result.stdout == "early\nlate\n"
    assert time.monotonic() - started >= 0.6


def test_live_processes_are_listed_with_their_commands(sandbox: Sandbox) -> None:
    handle = sandbox.commands.run("sleep 40", background=True, envs={"K": "V"})
    listed = {process.pid: process for process in sandbox.commands.list()}
    assert listed[handle.pid].args == ["-l", "-c", "sleep 40"]
    assert listed[handle.pid].envs == {"K": "V"}
    handle.kill()
    eventually(lambda: handle.pid not in {process.pid for process in sandbox.commands.list()})


def test_large_output_arrives_whole_and_in_order(sandbox: Sandbox) -> None:
    result = sandbox.commands.run("seq 1 400000")
    assert result.stdout == "".join(f"{n}\n" for n in range(1, 400001))


def test_an_unknown_process_is_not_found(sandbox: Sandbox) -> None:
    with pytest.raises(NotFoundException):
        sandbox.commands.connect(999_999_999)
    with pytest.raises(NotFoundException):
        sandbox.commands.send_stdin(999_999_999, "x")


async def test_twenty_commands_at_once_do_not_mix(async_sandbox: AsyncSandbox) -> None:
    import asyncio

    results = await asyncio.gather(*(async_sandbox.commands.run(f"sleep 0.1; echo {n}") for n in range(20)))
    assert [result.stdout for result in results] == [f"{n}\n" for n in range(20)]


def test_a_terminal_has_a_size_echoes_and_ends(sandbox: Sandbox) -> None:
    from e2b import PtySize

    handle = sandbox.pty.create(PtySize(rows=24, cols=80), cwd="/", envs={"PS1": "> "})
    sandbox.pty.resize(handle.pid, PtySize(rows=33, cols=111))
    sandbox.pty.send_stdin(handle.pid, b"stty size; tty; exit 5\n")
    seen: list[bytes] = []
    with pytest.raises(CommandExitException) as ended:
        handle.wait(on_pty=seen.append)
    output = b"".join(seen)
    assert b"33 111" in output
    assert b"/dev/pts/" in output
    assert ended.value.exit_code == 5


def test_a_process_that_ends_by_a_signal_says_which(sandbox: Sandbox) -> None:
    with pytest.raises(CommandExitException) as ended:
        sandbox.commands.run("kill -SEGV $$")
    assert ended.value.exit_code == -1
    assert ended.value.error.startswith("signal: segmentation fault")
    assert signal.SIGSEGV == 11
