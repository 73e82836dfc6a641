"""A cell on its way: what it shows, between the kernel that runs it and the client that reads it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Mapping

from interpreter.kernel import Kernel
from interpreter.languages import Language
from interpreter.outputs import END, Line, encode, error, failure, line_of

ROOM = 1 << 20  # bytes that may wait for the client
BATCH = 1 << 16  # many small lines travel together
EXPLAIN_LIMIT_S = 5.0


class Cell:
    """Lines wait here in order; whoever adds one waits until there is room."""

    def __init__(self, code: str, env: Mapping[str, str], token: str | None) -> None:
        self.code = code
        self.env = env
        self.token = token
        self.is_abandoned = False
        self.done = asyncio.Event()  # nothing more is shown
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._changed = asyncio.Condition()

    async def show(self, line: Line) -> None:
        data = encode(line)
        async with self._changed:
            await self._changed.wait_for(lambda: self._size < ROOM or self.is_abandoned)
            if not self.is_abandoned:
                self._lines.append(data)
                self._size += len(data)
                self._changed.notify_all()

    async def end(self) -> None:
        if not self.done.is_set():
            await self.show(END)
            self.done.set()
            async with self._changed:
                self._changed.notify_all()

    async def abandon(self) -> None:
        """Nobody reads any more."""
        async with self._changed:
            self.is_abandoned = True
            self._lines.clear()
            self._changed.notify_all()

    async def next(self, timeout_s: float) -> bytes | None:
        """The lines that wait, at most about BATCH at once; None when there were none for that long, b"" at the end."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: self._lines or self.done.is_set())
        except TimeoutError:
            return None
        batch = bytearray()
        while self._lines and len(batch) < BATCH:
            batch += self._lines.popleft()
        self._size -= len(batch)
        async with self._changed:
            self._changed.notify_all()
        return bytes(batch)


async def lines(kernel: Kernel, code: str) -> AsyncIterator[Line]:
    """What the cell shows, as the SDKs read it."""
    has_failed = False
    async for message in kernel.run(code):
        if message["msg_type"] == "execute_reply":
            status = message["content"].get("status")
            if status == "error" and not has_failed:
                yield await _unexplained(kernel.language, code, message["content"])
            elif status in ("abort", "aborted"):
                yield failure("ExecutionAborted", "The cell was not run")
            continue
        line = line_of(message)
        if line is None or (line["type"] == "error" and has_failed):
            continue
        if line["type"] == "error":
            has_failed = True
            if kernel.language.read_error:
                line["name"], line["value"] = kernel.language.read_error(line["name"], line["traceback"])
        yield line


async def _unexplained(language: Language, code: str, reply: Mapping[str, object]) -> Line:
    """The kernel said only in its reply that the cell failed, and not every kernel says why."""
    if language.explain:
        why = await _explanation(language.explain, code)
        if why:
            name, _, text = why.partition("\n")[0].partition(": ")
            return failure(name, text, why)
    return error(reply)


async def _explanation(program: tuple[str, ...], code: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *program,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={"NO_COLOR": "1", "HOME": "/tmp"},
        cwd="/",
    )
    try:
        _, said = await asyncio.wait_for(process.communicate(code.encode("utf-8", "replace")), EXPLAIN_LIMIT_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        return ""
    text = said.decode("utf-8", "replace").partition("\nStack backtrace:")[0]
    return text.removeprefix("error: ").rstrip() if process.returncode else ""
