"""Child processes of the tools: each is a session of its own, so that all of it can be ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.texts import MOST_SHOWN, Kept

GRACE_S = 2.0
LINGER_S = 0.25  # how long output is awaited from what a command left in the background


@dataclass(frozen=True, slots=True)
class Outcome:
    """A failing command is a result. `exit_code` is None when it was ended for taking too long."""

    exit_code: int | None
    stdout: str
    stderr: str


async def run(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    stdin: bytes = b"",
    most: int = MOST_SHOWN,
) -> Outcome:
    """To its end, or to the end of its time. Raises `OSError` if it cannot be started."""
    out, err = Kept(most), Kept(most)
    async with AsyncExitStack() as stack:
        # Pipes of our own: asyncio's keep `wait` from returning for as long as something in the background holds them.
        to_out, to_err = [await stack.enter_async_context(_pipe(kept)) for kept in (out, err)]
        given = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
        given.write(stdin)
        given.seek(0)
        try:
            process = await asyncio.create_subprocess_exec(
                *command, cwd=cwd, env=env, stdin=given, stdout=to_out, stderr=to_err, start_new_session=True
            )
        finally:
            os.close(to_out)
            os.close(to_err)
        try:
            exit_code: int | None = shell_code(await asyncio.wait_for(process.wait(), timeout_s))
        except TimeoutError:
            exit_code = None
            await end(process)
        except asyncio.CancelledError:  # nobody waits for it any more
            await asyncio.shield(end(process))
            raise
    return Outcome(exit_code, out.text(), err.text())


@asynccontextmanager
async def _pipe(kept: Kept) -> AsyncIterator[int]:
    """The end to write to. What comes is kept; at the end, what is on its way is awaited for a moment."""
    ours, theirs = os.pipe()
    reader = asyncio.StreamReader()
    file = os.fdopen(ours, "rb", 0)
    try:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), file
        )
    except BaseException:
        file.close()
        os.close(theirs)
        raise
    taking = asyncio.create_task(_take(reader, kept))
    try:
        yield theirs
    finally:
        await asyncio.wait((taking,), timeout=LINGER_S)
        taking.cancel()
        transport.close()


async def end(process: Process, ask: signal.Signals = signal.SIGTERM) -> None:
    """The process and all of its session: first asked, then forced."""
    for kind in (ask, signal.SIGKILL):
        for pid in session_of(process.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, kind)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_ended(process), GRACE_S)
            return


def shell_code(code: int) -> int:
    """As a shell tells it: a process that was ended by signal 9 has 137."""
    return code if code >= 0 else 128 - code


async def _ended(process: Process) -> None:
    await process.wait()
    while session_of(process.pid):  # noqa: ASYNC110 - nobody tells of the end of what is not our child
        await asyncio.sleep(0.05)


def session_of(leader: int) -> list[int]:
    """The processes that belong to the session of this leader. Only what we started leads one of ours."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) > 1 and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(fields[3]) == leader and fields[0] != "Z":
                    found.append(int(entry.name))
    return found


async def _take(stream: asyncio.StreamReader, kept: Kept) -> None:
    while data := await stream.read(1 << 16):
        kept.take(data)
