"""The tools for shell sessions in the background: programs on terminals of their own, with the end of what they wrote."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import fcntl
import itertools
import os
import pty
import signal
import struct
import termios
import time
from asyncio.subprocess import Process
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastmcp.exceptions import ToolError
from pydantic import Field

from tools import processes
from tools.texts import MOST_SHOWN, cut, plain
from tools.workspace import Workspace, telling

MOST_KEPT = 1 << 20  # characters of each session's output
MOST_SESSIONS = 32
WRITE_S = 10.0
ROWS, COLUMNS = 50, 160
Key = Literal[
    "enter", "tab", "escape", "backspace", "up", "down", "left", "right", "ctrl-c", "ctrl-d", "ctrl-z", "ctrl-l"
]
KEYS: dict[str, str] = {
    "enter": "\r", "tab": "\t", "escape": "\x1b", "backspace": "\x7f",
    "up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D",
    "ctrl-c": "\x03", "ctrl-d": "\x04", "ctrl-z": "\x1a", "ctrl-l": "\x0c",
}  # fmt: skip
SessionId = Annotated[str, Field(description="As shell_start gave it.", min_length=1, max_length=20)]


class Terminal:
    """One program on its terminal."""

    def __init__(self, name: str, command: str, process: Process, master: int) -> None:
        self.name, self.command, self._process, self._master = name, command, process, master
        self.started = time.time()
        self.exit_code: int | None = None
        self._text, self._begin = "", 0  # what is kept, and how much was written before it
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._news = asyncio.Event()
        os.set_blocking(master, False)
        asyncio.get_running_loop().add_reader(master, self._read)
        self._watch = asyncio.create_task(self._wait())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def written(self) -> int:
        return self._begin + len(self._text)

    def since(self, position: int | None) -> tuple[str, int]:
        """What was written behind a position, and how much of that is no longer kept."""
        start = max(0, position if position is not None else 0)
        return self._text[max(0, start - self._begin) :], max(0, self._begin - start)

    async def news(self, position: int, seconds: float) -> None:
        """Until there is more than `position`, or it has ended, or time is up."""
        deadline = time.monotonic() + seconds
        while self.written <= position and self.exit_code is None and (left := deadline - time.monotonic()) > 0:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), left)

    async def write(self, data: bytes) -> None:
        deadline = time.monotonic() + WRITE_S
        while data:
            if self.exit_code is not None:
                raise ToolError(f"session {self.name} has ended with {self.exit_code}")
            try:
                data = data[os.write(self._master, data) :]
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ToolError(f"session {self.name} does not read what is written to it") from None
                await asyncio.sleep(0.05)
            except OSError as error:
                raise ToolError(f"session {self.name} takes no more input: its program closed the terminal") from error

    async def stop(self) -> None:
        await processes.end(self._process, signal.SIGHUP)  # an interactive shell heeds no other
        await self._watch

    async def _wait(self) -> None:
        code = processes.shell_code(await self._process.wait())
        self._read()
        self.exit_code = code
        self._close()
        self._news.set()

    def _read(self) -> None:
        for _ in range(64):  # others want their turn as well
            try:
                data = os.read(self._master, 1 << 16)
            except BlockingIOError:
                return
            except OSError:  # everybody closed the other side
                asyncio.get_running_loop().remove_reader(self._master)
                return
            self._text += self._decoder.decode(data)
            if len(self._text) > MOST_KEPT * 2:
                self._begin += len(self._text) - MOST_KEPT
                self._text = self._text[-MOST_KEPT:]
            self._news.set()

    def _close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)


class Terminals:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._all: dict[str, Terminal] = {}
        self._numbers = itertools.count(1)

    def tools(self) -> Sequence[Any]:
        return (self.shell_start, self.shell_view, self.shell_write, self.shell_stop, self.shell_list)

    async def shell_start(
        self,
        command: Annotated[str, Field(description="For bash; left out: an interactive bash.", max_length=100_000)] = "",
        cwd: Annotated[str | None, Field(description="Where; the home directory if left out.")] = None,
        wait: Annotated[float, Field(ge=0, le=60, description="Seconds to wait for first output.")] = 1.0,
    ) -> dict[str, Any]:
        """Start a program in the background on a terminal of its own: a server, a REPL, a shell to type into."""
        alive = [one for one in self._all.values() if one.exit_code is None]
        if len(alive) >= MOST_SESSIONS:
            raise ToolError(f"{len(alive)} sessions run already; stop one with shell_stop first")
        self._forget_ended()
        where = self._workspace.directory(cwd)
        with telling("start a session in", where):
            process, master = await self._spawn(command, str(where))
        terminal = Terminal(f"sh{next(self._numbers)}", command or "bash", process, master)
        self._all[terminal.name] = terminal
        await terminal.news(0, wait)
        return self._shown(terminal, 0)

    async def shell_view(
        self,
        session: SessionId,
        since: Annotated[int | None, Field(ge=0, description="Only what was written behind this position.")] = None,
        wait: Annotated[float, Field(ge=0, le=300, description="Seconds to wait for something new.")] = 0,
    ) -> dict[str, Any]:
        """What a session wrote, and whether it still runs. `next` is the position to ask from the next time."""
        terminal = self._find(session)
        await terminal.news(since if since is not None else terminal.written, wait)
        return self._shown(terminal, since)

    async def shell_write(
        self,
        session: SessionId,
        text: Annotated[str, Field(description="What to type.", max_length=1 << 20)] = "",
        key: Annotated[Key | None, Field(description="A key to press after the text.")] = "enter",
        wait: Annotated[float, Field(ge=0, le=300, description="Seconds to wait for an answer.")] = 1.0,
    ) -> dict[str, Any]:
        """Type into a session; answers with what it wrote since. Set `key` to null to press nothing after the text."""
        terminal = self._find(session)
        before = terminal.written
        await terminal.write(text.encode("utf-8", "replace") + (KEYS[key] if key else "").encode())
        await self._quiet(terminal, before, wait)
        return self._shown(terminal, before)

    async def shell_stop(self, session: SessionId) -> dict[str, Any]:
        """End a session and everything it started."""
        terminal = self._find(session)
        if terminal.exit_code is None:
            await terminal.stop()
        return self._shown(terminal, max(0, terminal.written - 2000))

    async def shell_list(self) -> dict[str, Any]:
        """The sessions in the background."""
        sessions = [
            {
                "session": one.name,
                "command": cut(one.command, 200),
                "running": one.exit_code is None,
                "exit_code": one.exit_code,
                "pid": one.pid,
                "seconds": round(time.time() - one.started),
            }
            for one in self._all.values()
        ]
        return {"sessions": sessions}

    async def close(self) -> None:
        await asyncio.gather(*(one.stop() for one in self._all.values() if one.exit_code is None))

    async def _spawn(self, command: str, cwd: str) -> tuple[Process, int]:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        try:
            process = await asyncio.create_subprocess_exec(
                *(["/bin/bash", "-l", "-c", command] if command else ["/bin/bash", "-l", "-i"]),
                cwd=cwd,
                env=self._workspace.environment(),
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that ctrl-c is a signal
            )
        except BaseException:
            os.close(master)
            raise
        finally:
            os.close(slave)
        return process, master

    def _find(self, session: str) -> Terminal:
        if session not in self._all:
            known = ", ".join(self._all) or "none"
            raise ToolError(f"there is no session {session!r} (there are: {known}); start one with shell_start")
        return self._all[session]

    def _forget_ended(self) -> None:
        ended = [name for name, one in self._all.items() if one.exit_code is not None]
        for name in ended[: max(0, len(self._all) - MOST_SESSIONS + 1)]:
            del self._all[name]

    @staticmethod
    async def _quiet(terminal: Terminal, before: int, wait: float) -> None:
        """Until it wrote something and then fell silent for a moment."""
        deadline = time.monotonic() + wait
        await terminal.news(before, wait)
        while (left := deadline - time.monotonic()) > 0 and terminal.exit_code is None:
            seen = terminal.written
            await terminal.news(seen, min(left, 0.2))
            if terminal.written == seen:
                return

    @staticmethod
    def _shown(terminal: Terminal, since: int | None) -> dict[str, Any]:
        text, lost = terminal.since(since)
        shown = plain(text)
        if since is None and len(shown) > MOST_SHOWN:
            shown = f"… {len(shown) - MOST_SHOWN} characters before this …\n{shown[-MOST_SHOWN:]}"
        answer = {
            "session": terminal.name,
            "output": cut(shown),
            "next": terminal.written,
            "running": terminal.exit_code is None,
        }
        if terminal.exit_code is not None:
            answer["exit_code"] = terminal.exit_code
        return {**answer, "lost": lost} if lost and since is not None else answer
