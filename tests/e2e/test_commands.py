"""Commands in sandboxes, as users of the Python SDK run them."""

from __future__ import annotations

import asyncio
import hashlib
import time

import pytest
from e2b import AsyncSandbox, CommandExitException, Sandbox
from e2b.exceptions import AuthenticationException, InvalidArgumentException, NotFoundException, TimeoutException
from tests.e2e.server import Server, until


def is_running(sandbox: Sandbox, word: str) -> bool:
    """Whether a process with this word in its command line runs (the brackets keep the search from finding itself)."""
    found = sandbox.commands.run(f"pgrep -f '[{word[0]}]{word[1:]}' || true", user="root")
    return bool(found.stdout.strip())


def test_output_and_errors_come_apart(sandbox: Sandbox) -> None:
    done = sandbox.commands.run("echo out; echo err >&2")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "out\n", "err\n")


@pytest.mark.parametrize("status", [1, 2, 42, 127, 255])
def test_a_failing_command_is_told_with_its_status(sandbox: Sandbox, status: int) -> None:
    with pytest.raises(CommandExitException) as caught:
        sandbox.commands.run(f"echo so far; echo why >&2; exit {status}")
    assert caught.value.exit_code == status
    assert caught.value.stdout == "so far\n" and caught.value.stderr == "why\n"


def test_npm_can_run_its_own_scripts(sandbox: Sandbox) -> None:
    """Packages with native code are compiled by one of them."""
    found = sandbox.commands.run('"$(dirname "$(readlink -f "$(which npm)")")/node-gyp-bin/node-gyp" --version').stdout
    assert found.startswith("v")


def test_output_arrives_in_order_while_the_command_runs(sandbox: Sandbox) -> None:
    seen: list[tuple[float, str]] = []
    sandbox.commands.run(
        "for i in 1 2 3 4 5; do echo $i; sleep 0.1; done", on_stdout=lambda text: seen.append((time.monotonic(), text))
    )
    assert "".join(text for _, text in seen) == "1\n2\n3\n4\n5\n"
    assert len(seen) == 5 and seen[-1][0] - seen[0][0] > 0.2


def test_a_command_in_the_background_can_be_left_and_found_again(sandbox: Sandbox) -> None:
    handle = sandbox.commands.run("echo first; read word; echo got $word; exit 3", background=True, stdin=True)
    handle.disconnect()
    listed = {process.pid: process for process in sandbox.commands.list()}
    assert "read word" in " ".join(listed[handle.pid].args)
    again = sandbox.commands.connect(handle.pid)
    sandbox.commands.send_stdin(handle.pid, "hello\n")
    with pytest.raises(CommandExitException) as caught:
        again.wait()
    assert caught.value.exit_code == 3 and "got hello" in caught.value.stdout
    assert handle.pid not in {process.pid for process in sandbox.commands.list()}


def test_input_is_passed_on_and_closed(sandbox: Sandbox) -> None:
    handle = sandbox.commands.run("cat; echo end", background=True, stdin=True)
    sandbox.commands.send_stdin(handle.pid, "ä€😀\n")
    sandbox.commands.send_stdin(handle.pid, "two\n")
    sandbox.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "ä€😀\ntwo\nend\n"


def test_a_command_without_input_sees_its_end_at_once(sandbox: Sandbox) -> None:
    assert sandbox.commands.run("cat; echo done", timeout=10).stdout == "done\n"


def test_megabytes_of_input_arrive_whole(sandbox: Sandbox) -> None:
    blocks = [bytes([n]) * 100_000 for n in range(30)]
    handle = sandbox.commands.run("sha256sum", background=True, stdin=True)
    sandbox.commands.stream_input(handle.pid, blocks)
    sandbox.commands.close_stdin(handle.pid)
    assert handle.wait().stdout.split()[0] == hashlib.sha256(b"".join(blocks)).hexdigest()


def test_a_killed_command_ends(sandbox: Sandbox) -> None:
    handle = sandbox.commands.run("sleep 301.5", background=True)
    assert is_running(sandbox, "sleep 301.5")
    assert handle.kill() is True
    with pytest.raises(CommandExitException) as caught:
        handle.wait()
    assert caught.value.exit_code != 0
    assert sandbox.commands.kill(handle.pid) is False
    until(lambda: not is_running(sandbox, "sleep 301.5"))


def test_a_signal_from_inside_is_reported(sandbox: Sandbox) -> None:
    with pytest.raises(CommandExitException) as caught:
        sandbox.commands.run("kill -TERM $$; sleep 10")
    assert caught.value.exit_code != 0 and "terminated" in str(caught.value.error)


def test_a_timeout_kills_the_command(sandbox: Sandbox) -> None:
    with pytest.raises(TimeoutException):
        sandbox.commands.run("echo started; exec sleep 302.5", timeout=1)
    until(lambda: not is_running(sandbox, "sleep 302.5"), 10)


def test_a_client_that_goes_away_does_not_end_the_command(sandbox: Sandbox) -> None:
    handle = sandbox.commands.run("exec sleep 303.5", background=True, timeout=0)
    handle.disconnect()
    assert is_running(sandbox, "sleep 303.5")
    assert sandbox.commands.kill(handle.pid) is True


def test_commands_run_as_the_user_in_its_home(sandbox: Sandbox) -> None:
    assert sandbox.commands.run("id -un; id -u; pwd; echo $HOME").stdout.split() == [
        "user", "1000", "/home/user", "/home/user",
    ]  # fmt: skip


def test_commands_can_run_as_root_and_through_sudo(sandbox: Sandbox) -> None:
    assert sandbox.commands.run("id -u", user="root").stdout == "0\n"
    assert sandbox.commands.run("sudo -n id -u").stdout == "0\n"


def test_variables_and_directory_are_the_callers_choice(sandbox: Sandbox) -> None:
    done = sandbox.commands.run('echo "$GREETING" $PWD', envs={"GREETING": "hällo 'wörld'"}, cwd="/tmp")
    assert done.stdout == "hällo 'wörld' /tmp\n"


def test_a_sandbox_knows_itself(sandbox: Sandbox) -> None:
    done = sandbox.commands.run("echo $E2B_SANDBOX $E2B_SANDBOX_ID; hostname")
    assert done.stdout.split() == ["true", sandbox.sandbox_id, sandbox.sandbox_id]


def test_variables_of_the_sandbox_reach_commands_and_can_be_overridden(server: Server) -> None:
    sandbox = server.create(envs={"COLOR": "red", "SHAPE": "round"})
    try:
        assert sandbox.commands.run("echo $COLOR $SHAPE", envs={"SHAPE": "square"}).stdout == "red square\n"
    finally:
        sandbox.kill()


def test_what_cannot_be_run_is_refused_with_a_reason(sandbox: Sandbox) -> None:
    with pytest.raises(InvalidArgumentException, match="/nowhere"):
        sandbox.commands.run("true", cwd="/nowhere")
    with pytest.raises(AuthenticationException, match="nobody-here"):
        sandbox.commands.run("true", user="nobody-here")
    with pytest.raises(NotFoundException):
        sandbox.commands.connect(999_999)


def test_twenty_megabytes_of_output_arrive_whole(sandbox: Sandbox) -> None:
    expected = "".join(f"{n}\n" for n in range(1, 2_740_001))
    assert len(expected) > 20_000_000
    assert sandbox.commands.run("seq 1 2740000").stdout == expected


def test_characters_are_whole_however_they_were_cut(sandbox: Sandbox) -> None:
    code = r"""python3 -c "import sys,time
for b in '€😀ä'.encode()*3: sys.stdout.buffer.write(bytes([b])); sys.stdout.flush(); time.sleep(0.005)" """
    assert sandbox.commands.run(code).stdout == "€😀ä" * 3


async def test_many_commands_at_once(server: Server, sandbox: Sandbox) -> None:
    box = await AsyncSandbox.connect(sandbox.sandbox_id, **server.sdk)
    done = await asyncio.gather(*(box.commands.run(f"sleep 0.2; echo {n}") for n in range(25)))
    assert [result.stdout for result in done] == [f"{n}\n" for n in range(25)]


async def test_streams_with_the_async_sdk(server: Server, sandbox: Sandbox) -> None:
    box = await AsyncSandbox.connect(sandbox.sandbox_id, **server.sdk)
    out: list[str] = []
    err: list[str] = []
    handle = await box.commands.run(
        "while read -r line; do echo out:$line; echo err:$line >&2; done; exit 7",
        background=True, stdin=True, on_stdout=out.append, on_stderr=err.append,
    )  # fmt: skip
    for n in range(5):
        await box.commands.send_stdin(handle.pid, f"{n}\n")
    await box.commands.close_stdin(handle.pid)
    with pytest.raises(CommandExitException) as caught:
        await handle.wait()
    assert caught.value.exit_code == 7
    assert "".join(out).split() == [f"out:{n}" for n in range(5)]
    assert "".join(err).split() == [f"err:{n}" for n in range(5)]
