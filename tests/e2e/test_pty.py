"""Terminals in sandboxes: sizes, keys and ends, with the Python SDK."""

from __future__ import annotations

import asyncio

import pytest
from e2b import AsyncSandbox, CommandExitException, PtySize, Sandbox
from tests.e2e.server import Server


class Terminal:
    """What a person at the keyboard does: type, and wait until something is on the screen."""

    def __init__(self, box: AsyncSandbox) -> None:
        self.box, self.screen, self._more = box, b"", asyncio.Event()

    async def open(self, **options: object) -> Terminal:
        self.handle = await self.box.pty.create(PtySize(rows=24, cols=80), on_data=self._show, **options)
        return self

    def _show(self, data: bytes) -> None:
        self.screen += bytes(data)
        self._more.set()

    async def type(self, text: str) -> None:
        await self.box.pty.send_stdin(self.handle.pid, text.encode())

    async def shows(self, text: str, seconds: float = 20) -> None:
        async with asyncio.timeout(seconds):
            while text.encode() not in self.screen:
                self._more.clear()
                await self._more.wait()


@pytest.fixture
async def box(server: Server, sandbox: Sandbox) -> AsyncSandbox:
    return await AsyncSandbox.connect(sandbox.sandbox_id, **server.sdk)


async def test_a_shell_answers_and_exits(box: AsyncSandbox) -> None:
    terminal = await Terminal(box).open(envs={"FRUIT": "pear"}, cwd="/tmp")
    await terminal.type("echo $((6*7))-$FRUIT-$TERM-$PWD; tty\n")
    await terminal.shows("42-pear-xterm-256color-/tmp")
    await terminal.shows("/dev/pts/")
    await terminal.type("exit 5\n")
    with pytest.raises(CommandExitException) as caught:
        await terminal.handle.wait()
    assert caught.value.exit_code == 5


async def test_the_size_is_the_windows_and_follows_it(box: AsyncSandbox) -> None:
    terminal = await Terminal(box).open()
    await terminal.type("trap 'echo resized-$(stty size)' WINCH; stty size; echo $((40+2))-ready\n")
    await terminal.shows("24 80")
    await terminal.shows("42-ready")  # the shell itself is in front again, so the signal is for it
    await box.pty.resize(terminal.handle.pid, PtySize(rows=50, cols=132))
    await terminal.type("stty size\n")
    await terminal.shows("50 132")
    await terminal.shows("resized-50 132")
    assert await box.pty.kill(terminal.handle.pid) is True


async def test_control_c_interrupts_what_runs_not_the_shell(box: AsyncSandbox) -> None:
    terminal = await Terminal(box).open()
    # What it says itself shows that it has the terminal. A key that comes earlier is only a character in the line.
    await terminal.type("sh -c 'echo run-$((1+1)); exec sleep 300'; echo status-$?\n")
    await terminal.shows("run-2")
    await terminal.type("\x03")
    await terminal.type("echo $((40+2))-alive\n")
    await terminal.shows("42-alive")
    assert b"status-0" not in terminal.screen
    assert await terminal.handle.kill() is True


async def test_a_terminal_can_be_left_and_found_again(box: AsyncSandbox) -> None:
    terminal = await Terminal(box).open()
    await terminal.type("X=kept\n")
    await terminal.handle.disconnect()
    again = Terminal(box)
    again.handle = await box.pty.connect(terminal.handle.pid, on_data=again._show)
    await again.type("echo is-$X\n")
    await again.shows("is-kept")
    assert await box.pty.kill(again.handle.pid) is True
    assert await box.pty.kill(again.handle.pid) is False


async def test_control_d_ends_the_shell(box: AsyncSandbox) -> None:
    terminal = await Terminal(box).open()
    await terminal.type("echo $((1+1))-ready\n")
    await terminal.shows("2-ready")
    await terminal.type("\x04")
    assert (await terminal.handle.wait()).exit_code == 0


def test_the_sync_sdk_reads_a_terminal_too(sandbox: Sandbox) -> None:
    handle = sandbox.pty.create(PtySize(rows=10, cols=40))
    sandbox.pty.send_stdin(handle.pid, b"stty size; exit\n")
    screen = bytearray()
    handle.wait(on_pty=screen.extend)
    assert b"10 40" in screen
